/** A process of the application of a cell, as the cell sees it. The resource is in the process of the cell. */
import { fork } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('worker.mjs', import.meta.url));

export class Worker {
  hasEnded = false;
  isKilled = false;
  #child;
  #journal;
  #heard = []; // messages that nobody has waited for yet
  #listeners = new Set();

  constructor(terms, scratch, resource) {
    this.#journal = join(scratch, `journal-${terms.seed}`);
    writeFileSync(this.#journal, '');
    // The output of the process comes from the library; an error at its start does not.
    this.#child = fork(program, [JSON.stringify({ ...terms, journal: this.#journal })], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#child.on('error', () => {}); // a message to a process that has ended
    this.#child.on('exit', () => (this.hasEnded = true));
    this.#child.on('message', ({ what, ask }) => {
      if (ask) void this.#answer(ask, resource);
      else this.#heard.push(what);
      for (const listener of this.#listeners) listener();
    });
  }

  /** A request to the resource takes as long as it says. */
  async #answer({ id, call, delayMs = 0, ...terms }, resource) {
    if (delayMs > 0) await sleep(delayMs);
    this.send({ reply: { id, value: (await resource[call](terms)) ?? null } });
  }

  /** Waits for this message. */
  hears(what, limitMs) {
    return new Promise((resolve, reject) => {
      const settle = (act) => {
        clearTimeout(timer);
        this.#listeners.delete(look);
        this.#child.off('exit', gone);
        act();
      };
      const look = () => {
        const at = this.#heard.indexOf(what);
        if (at >= 0) settle(() => resolve(this.#heard.splice(at, 1)));
      };
      const fail = (how) => settle(() => reject(new Error(`a process ${how} before it was ${what}.`)));
      const gone = () => fail('ended');
      const timer = setTimeout(() => fail(`took more than ${limitMs / 1_000} s`), limitMs);
      this.#listeners.add(look);
      this.#child.on('exit', gone);
      if (this.hasEnded) gone();
      else look();
    });
  }

  send(message) {
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  signal(signal) {
    this.#child.kill(signal);
  }

  kill() {
    this.isKilled = true;
    this.signal('SIGKILL');
  }

  notes() {
    const lines = readFileSync(this.#journal, 'utf8').split('\n');
    return lines.filter((line) => line.endsWith('}')).map((line) => JSON.parse(line));
  }
}
