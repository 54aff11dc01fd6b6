import type { RedisLockModuleOptions } from '../../lib/index.js';
import { DrivenProcess } from '../support/driven-process.js';

/** The request of a caller: the lock of one key, or the locks of several. */
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

/** The turns of callers, and the codes of their errors. */
export interface Outcome {
  turns: Turn[];
  refusals: string[];
}

/** A turn in transit: without numbers that JSON does not know. */
type SentTurn = Omit<Turn, 'askedAt' | 'from' | 'to'> & Record<'askedAt' | 'from' | 'to', string>;

/** A separate process that holds several locks at once, and can be killed. */
export class SetProcess extends DrivenProcess {
  static start(options: RedisLockModuleOptions): Promise<SetProcess> {
    return new SetProcess(new URL('set-process.worker.mjs', import.meta.url), options).ready();
  }

  /** Acquires the locks, and keeps them until the process ends. */
  hold(keys: string[], ttlMs: number): Promise<void> {
    return this.ask('hold', keys, ttlMs);
  }

  /** Lets this many callers take the requested locks, each the next request, until all had their turns. */
  async turns(wishes: Wish[], callers = 1): Promise<Outcome> {
    const { turns, refusals } = await this.ask<{ turns: SentTurn[]; refusals: string[] }>('turns', wishes, callers);
    return { turns: turns.map(received), refusals };
  }

  /** Lets this many callers take the lock of each key again and again, until `disperse`. */
  crowd(keys: string[], callers: number): Promise<void> {
    return this.ask('crowd', keys, callers);
  }

  /** @returns all turns of the crowd */
  async disperse(): Promise<Turn[]> {
    return (await this.ask<SentTurn[]>('disperse')).map(received);
  }

  /** How much memory its lock service uses. */
  size(): Promise<number> {
    return this.ask('size');
  }
}

function received({ askedAt, from, to, ...turn }: SentTurn): Turn {
  return { ...turn, askedAt: BigInt(askedAt), from: BigInt(from), to: BigInt(to) };
}
