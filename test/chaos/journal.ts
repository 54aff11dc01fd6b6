import { openSync, readdirSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { nowMs, type Entry, type Unstamped } from './history.js';

/**
 * The file to which one process writes its events at once: its actions are known even if it is killed in the next
 * moment.
 */
export class Journal {
  readonly #file: number;

  constructor(folder: string, name: string) {
    this.#file = openSync(join(folder, `${name}.journal`), 'a');
  }

  note(entry: Unstamped, at = nowMs()): void {
    writeSync(this.#file, `${JSON.stringify({ at, ...entry })}\n`);
  }
}

/** All entries in a folder. */
export function readJournals(folder: string): Entry[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.journal'))
    .flatMap((file) => readFileSync(join(folder, file), 'utf8').split('\n'))
    .filter((line) => line.endsWith('}')) // a process may be killed in the middle of a line
    .map((line) => JSON.parse(line) as Entry);
}
