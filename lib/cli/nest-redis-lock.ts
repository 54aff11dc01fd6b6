#!/usr/bin/env node
import { EXIT } from './command.js';
import { main } from './main.js';
import { ownTerminal } from './terminal.js';

// EPIPE on stdout means that the reader, such as `head`, has seen enough. Errors on stderr must not end a command under a lock.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code === 'EPIPE') process.exit();
  process.stderr.write(`nest-redis-lock: The results cannot be written (${code}).\n`);
  process.exit(EXIT.fault);
});
process.stderr.on('error', () => {});

void main(process.argv.slice(2), process.env, ownTerminal()).then((code) => {
  process.exitCode = code;
});
