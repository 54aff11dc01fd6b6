import type { RedisLockModuleOptions } from '../../lib/index.js';
import { DrivenProcess } from '../support/driven-process.js';

/** What a caller asks for: the lock of one key, or those of several. */
export interface Wish {
  keys: string[];
  waitMs?: number;
}

/** One turn under locks; the times are in nanoseconds, of one clock for all processes. */
export interface Turn {
  keys: string[];
  /** In the order of the keys. */
  tokens: number[];
  askedAt: bigint;
  from: bigint;
  to: bigint;
}

/** What callers got, and the codes of what they were refused with. */
export interface Outcome {
  turns: Turn[];
  refusals: string[];
}

/** A turn as it travels: without numbers that JSON does not know. */
type SentTurn = Omit<Turn, 'askedAt' | 'from' | 'to'> & Record<'askedAt' | 'from' | 'to', string>;

/** A process of its own that holds several locks at once, to be killed. */
export class SetProcess extends DrivenProcess {
  static start(options: RedisLockModuleOptions): Promise<SetProcess> {
    return new SetProcess(new URL('set-process.worker.mjs', import.meta.url), options).ready();
  }

  /** Acquires the locks, and keeps them until the process ends. */
  hold(keys: string[], ttlMs: number): Promise<void> {
    return this.ask('hold', keys, ttlMs);
  }

  /** Has so many callers take what is wished for, each the next one, until all had their turns. */
  async turns(wishes: Wish[], callers = 1): Promise<Outcome> {
    const { turns, refusals } = await this.ask<{ turns: SentTurn[]; refusals: string[] }>('turns', wishes, callers);
    return { turns: turns.map(received), refusals };
  }

  /** Has so many callers take the lock of each key again and again, until `disperse`. */
  crowd(keys: string[], callers: number): Promise<void> {
    return this.ask('crowd', keys, callers);
  }

  /** @returns all turns of the crowd */
  async disperse(): Promise<Turn[]> {
    return (await this.ask<SentTurn[]>('disperse')).map(received);
  }

  /** How much its lock service keeps in memory. */
  size(): Promise<number> {
    return this.ask('size');
  }
}

function received({ askedAt, from, to, ...turn }: SentTurn): Turn {
  return { ...turn, askedAt: BigInt(askedAt), from: BigInt(from), to: BigInt(to) };
}
