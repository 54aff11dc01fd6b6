import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('worker.mjs', import.meta.url));

/** A client process of a cell. It runs the tasks of its scenario, by name. */
export class WorkerProcess {
  #child = fork(program, [], { execArgv: ['--expose-gc'] });
  #calls = new Map();
  #sequence = 0;

  constructor() {
    this.#child.on('message', ({ id, value, error }) => {
      const { resolve, reject } = this.#calls.get(id);
      this.#calls.delete(id);
      if (error) reject(Object.assign(new Error(error.message), { name: error.name, isRefused: error.isRefused }));
      else resolve(value);
    });
    this.#child.on('exit', (code, signal) => {
      for (const { reject } of this.#calls.values()) reject(new Error(`a client process ended: ${signal ?? code}`));
      this.#calls.clear();
    });
  }

  /** Ends it like a crash. Its tasks are rejected. */
  kill() {
    this.#child.kill('SIGKILL');
  }

  run(task, terms = {}) {
    const id = this.#sequence++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#child.send({ id, task, terms });
    });
  }
}
