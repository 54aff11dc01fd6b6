#!/usr/bin/env node
import { main } from './main.js';
import { ownTerminal } from './terminal.js';

// Whoever reads the output has seen enough.
process.stdout.on('error', () => process.exit());

void main(process.argv.slice(2), process.env, ownTerminal()).then((code) => {
  process.exitCode = code;
});
