import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LeaderOptions, RedisLockModuleOptions } from '../../lib/index.js';
import { DrivenProcess } from '../support/driven-process.js';

/** An entry of a process in the journal that all processes share. */
export interface Entry {
  process: string;
  /**
   * `began`, `ended`: the work of a term. `held`: `assertHeld` passed at some time after `at`. `late`: a write of work whose lock
   * was lost.
   */
  type: 'began' | 'held' | 'late' | 'ended';
  term: number;
  /** In nanoseconds, by one clock for all processes. */
  at: bigint;
}

/** The file in which processes record what they do as leaders, even if they are killed. */
export class LeaderJournal {
  readonly #folder = mkdtempSync(join(tmpdir(), 'leaders-'));
  readonly path = join(this.#folder, 'journal');

  constructor() {
    writeFileSync(this.path, '');
  }

  /** All entries of these types, in the order in which they were written. */
  entries(...types: Entry['type'][]): Entry[] {
    const lines = readFileSync(this.path, 'utf8').split('\n').slice(0, -1);
    const entries = lines.map((line) => {
      const { at, ...entry } = JSON.parse(line) as Omit<Entry, 'at'> & { at: string };
      return { ...entry, at: BigInt(at) };
    });
    return entries.filter(({ type }) => types.length === 0 || types.includes(type));
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** A process that takes part in an election and can be stopped and killed: its work lasts until its signal aborts. */
export class LeaderProcess extends DrivenProcess {
  static start(name: string, journal: LeaderJournal, options: RedisLockModuleOptions): Promise<LeaderProcess> {
    const settings = { name, journal: journal.path, options };
    return new LeaderProcess(new URL('leader-process.worker.mjs', import.meta.url), settings).ready();
  }

  campaign(key: string, options: LeaderOptions): Promise<void> {
    return this.ask('campaign', key, options);
  }

  resign(key: string): Promise<void> {
    return this.ask('resign', key);
  }

  /** Closes like an application. */
  close(): Promise<void> {
    return this.ask('close');
  }
}
