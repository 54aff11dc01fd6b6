#!/usr/bin/env node
import { main } from './main.js';
import { ownTerminal } from './terminal.js';

// Whoever reads the results has seen enough. A command under a lock goes on, although nobody reads what is said of it.
process.stdout.on('error', () => process.exit());
process.stderr.on('error', () => {});

void main(process.argv.slice(2), process.env, ownTerminal()).then((code) => {
  process.exitCode = code;
});
