#!/usr/bin/env node
import { EXIT } from './command.js';
import { main } from './main.js';
import { ownTerminal } from './terminal.js';

// Whoever reads the results has seen enough, unless they are lost. A command under a lock goes on, although nobody reads what is
// said of it.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code === 'EPIPE') process.exit();
  process.stderr.write(`nest-redis-lock: The results cannot be written (${code}).\n`);
  process.exit(EXIT.fault);
});
process.stderr.on('error', () => {});

void main(process.argv.slice(2), process.env, ownTerminal()).then((code) => {
  process.exitCode = code;
});
