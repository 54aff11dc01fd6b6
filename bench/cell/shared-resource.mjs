import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The resource that the lock protects: a counter and its last writer. All processes read and write them in one file, in
 * memory where possible. Reading and writing are two steps with the hold between them, so two simultaneous holders lose
 * an update.
 */
export class SharedResource {
  #file;
  #bytes = Buffer.alloc(8);

  constructor(path) {
    this.#file = openSync(path, 'r+');
  }

  read() {
    readSync(this.#file, this.#bytes, 0, 8, 0);
    return { count: this.#bytes.readInt32LE(0), last: this.#bytes.readInt32LE(4) };
  }

  write(count, last) {
    this.#bytes.writeInt32LE(count, 0);
    this.#bytes.writeInt32LE(last, 4);
    writeSync(this.#file, this.#bytes, 0, 8, 0);
  }

  close() {
    closeSync(this.#file);
  }
}

/** @returns a new resource, and its path for other processes */
export function createSharedResource(folder) {
  const path = join(folder, 'counter');
  closeSync(openSync(path, 'w'));
  const resource = new SharedResource(path);
  resource.write(0, -1);
  return { path, resource };
}
