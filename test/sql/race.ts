import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Row } from '../../lib/stores/sql/sql-client.js';
import { randomOf } from '../support/random.js';
import { GRANT_TTL_MS, RaceRecord, type Place } from './race-record.js';
import { statements, turnValues, type Asked as AskedFor, type PostgresStatement } from './statements.js';

const { extend, give, keep, sweep, take, turn } = statements;
/** Keys with a queue, and keys that are taken so rarely that their rows are deleted in between. */
const [HOT, COLD] = [4, 400];
/** Rows that are unused for this long are deleted, in milliseconds: not the rows of hot keys. */
const KEEP_MS = 2_500;

export interface RaceOptions {
  readonly url: string;
  readonly connections: number;
  readonly seconds: number;
  readonly seed: number;
}

type Asked = Omit<AskedFor, 'ticket' | 'number' | 'queues'> & { readonly place?: Place };

/**
 * Lets many connections race for few locks with the statements of the store: attempts with and without places,
 * hand-overs whose messages are partly lost, turns, withdrawals, forced releases, kept locks, leases that end, and rows
 * that are deleted. It lasts until it has had hand-overs, forced releases and deleted rows, however slow the machine
 * is.
 * @returns the record, for the checks
 */
export async function race({ url, connections, seconds, seed }: RaceOptions): Promise<RaceRecord> {
  const record = new RaceRecord();
  const endsAt = performance.now() + seconds * 1_000;
  const racers = Array.from({ length: connections }, (_, at) => new Racer(record, `r${at}`, randomOf(seed + at)));
  const isOver = () => performance.now() >= endsAt && record.hasAll;
  await Promise.all(racers.map((racer) => racer.run(url, isOver)));
  return record;
}

/** One connection, on which one contender after the other takes a lock. */
class Racer {
  #sequence = 0;
  #client!: pg.Client;

  constructor(
    private readonly record: RaceRecord,
    private readonly name: string,
    private readonly random: () => number,
  ) {}

  async run(url: string, isOver: () => boolean): Promise<void> {
    this.#client = new pg.Client(url);
    await this.#client.connect();
    while (!isOver()) {
      const chance = this.random();
      if (chance < 0.1) await this.#sweep();
      else if (chance < 0.2) await this.#several();
      else if (chance < 0.23) await this.#seize();
      else if (chance < 0.4) await this.#takesAlone(this.#key(COLD, 'cold'));
      else if (chance < 0.5) await this.#takesAlone(this.#key(HOT, 'hot'));
      else await this.#contends(this.#key(HOT, 'hot'));
    }
    await this.#client.end();
  }

  /** A contender that waits for the lock in its queue, and uses it. */
  async #contends(key: string): Promise<void> {
    const owner = this.#owner();
    // Its number is a little older than its first attempt, so that many contenders are not served first come, first
    // served by chance alone.
    const number = Date.now() * 1_000 - Math.floor(this.random() * 20_000);
    const place = this.random() < 0.85 ? this.record.place(key, owner, number) : undefined;
    const turns = 1 + Math.floor(this.random() * 5);
    const ttlMs = this.random() < 0.05 ? 15 : 5_000;
    const patience = this.random() < 0.15 ? 30 : Infinity;
    const startedAt = performance.now();
    for (;;) {
      const [row, sentAt] = await this.#turn({ key, owner, ttlMs, turns, place });
      if (Number(row?.is_taken) === 1) return this.#uses(key, owner, sentAt, ttlMs);
      if (!place) return;
      const told = await Promise.race([place.told, sleep(100 + this.random() * 200)]);
      if (told) {
        if (this.random() < 0.5) {
          const extended = await this.#extend(key, owner, 5_000);
          if (extended !== undefined) return this.#uses(key, owner, extended, 5_000);
        }
        return this.#uses(key, owner, told.sentAt, GRANT_TTL_MS);
      }
      if (performance.now() - startedAt > patience) {
        place.left(performance.now());
        await this.#turn({ key, give: owner, place });
        return;
      }
    }
  }

  async #takesAlone(key: string): Promise<void> {
    const owner = this.#owner();
    const sentAt = performance.now();
    const before = this.record.waitingFor(key, sentAt);
    const [row] = await this.#query(take, [key, owner, 5_000]);
    if (row?.token !== undefined) {
      const token = Number(row.token);
      this.record.grant({ key, owner, first: token, last: token, sentAt, before });
      return this.#uses(key, owner, sentAt, 5_000);
    }
    const [other, askedAt] = await this.#turn({ key, owner, ttlMs: 5_000 });
    if (Number(other?.is_taken) === 1) await this.#uses(key, owner, askedAt, 5_000);
  }

  /** Holds the lock for a moment, and ends the hold in one of many ways. */
  async #uses(key: string, owner: string, sentAt: number, ttlMs: number): Promise<void> {
    const use = this.record.begins(key, owner, sentAt, ttlMs);
    if (!use) return; // the answer came after the lease had ended
    // Its lease ends, and it is not released.
    if (ttlMs < 100) return sleep(30);
    await sleep(this.random() * 3);
    const chance = this.random();
    if (chance < 0.05) await sleep(ttlMs < 3_000 ? 0 : 20);
    use.ends(performance.now());
    if (chance < 0.1) {
      await this.#query(keep, [[key], [owner], [20], [true], [0]]);
    } else if (chance < 0.3) {
      const next = this.#owner();
      const place = this.record.place(key, next, Date.now() * 1_000);
      const [row, askedAt] = await this.#turn({ key, give: owner, owner: next, ttlMs: 5_000, place });
      if (Number(row?.is_taken) === 1) return this.#uses(key, next, askedAt, 5_000);
      place.left(performance.now());
      await this.#turn({ key, give: next, place });
    } else if (chance < 0.6) {
      const [row] = await this.#query(give, [key, owner]);
      if (Number(row?.is_done) !== 1) await this.#turn({ key, give: owner });
    } else await this.#turn({ key, give: owner });
  }

  /** Takes several locks in one statement, and releases them in another. */
  async #several(): Promise<void> {
    const keys = [...new Set([this.#key(HOT, 'hot'), this.#key(HOT, 'hot'), this.#key(COLD, 'cold')])];
    const owner = this.#owner();
    const [rows, sentAt] = await this.#turns(keys.map((key) => ({ key, owner, ttlMs: 5_000, turns: 3 })));
    const uses = keys
      .filter((_, at) => Number(rows[at]?.is_taken) === 1)
      .map((key) => ({ key, use: this.record.begins(key, owner, sentAt, 5_000) }));
    await sleep(this.random() * 2);
    for (const { use } of uses) use?.ends(performance.now());
    if (uses.length > 0) await this.#turns(uses.map(({ key }) => ({ key, give: owner })));
  }

  async #seize(): Promise<void> {
    const key = this.#key(HOT, 'hot');
    const sentAt = performance.now();
    const [row] = await this.#turn({ key, give: '*' });
    if (Number(row?.gives) === 1) this.record.seized(key, String(row!.holder), sentAt);
  }

  async #sweep(): Promise<void> {
    const [page] = await this.#query(sweep, ['', KEEP_MS]);
    this.record.swept += Number(page?.deleted ?? 0);
  }

  /** @returns when it was sent; undefined: not extended */
  async #extend(key: string, owner: string, ttlMs: number): Promise<number | undefined> {
    const sentAt = performance.now();
    const [row] = await this.#query(extend, [[key], [owner], [ttlMs], [false], [0]]);
    if (isSkipped(row)) return this.#extend(key, owner, ttlMs);
    return Number(row?.is_done) === 1 ? sentAt : undefined;
  }

  async #turn(asked: Asked): Promise<[Row | undefined, number]> {
    const [rows, sentAt] = await this.#turns([asked]);
    return [rows[0], sentAt];
  }

  /** Runs the statement, again for rows that others held, and records its grants. */
  async #turns(asked: readonly Asked[]): Promise<[(Row | undefined)[], number]> {
    const sentAt = performance.now();
    const seen = asked.map(({ key }) => this.record.waitingFor(key, sentAt));
    const values = asked.map((each) => {
      const asks = each.owner !== undefined && each.place !== undefined;
      return { ...each, ticket: each.place?.ticket, number: asks ? each.place!.number : undefined, queues: asks };
    });
    const all = await this.#query(turn, turnValues(values));
    const rows = asked.map((each) => all.find(({ key }) => key === each.key));
    for (const [at, { key, owner, place }] of asked.entries()) {
      const row = rows[at];
      if (isSkipped(row)) {
        const [again] = await this.#turns([asked[at]!]);
        rows[at] = again[0];
        continue;
      }
      if (!row) continue; // its row is just being deleted: then it has no place
      const [first, last] = [Number(row.first_token), Number(row.last_token)];
      if (Number(row.is_taken) === 1) {
        const wasHolder = row.holder === owner;
        this.record.grant({
          key,
          owner: owner!,
          first,
          last,
          sentAt,
          number: place?.number,
          before: wasHolder ? [] : seen[at]!,
        });
      } else if (typeof row.granted === 'string') {
        // Some messages are lost.
        const isTold = this.random() < 0.8;
        this.record.handOver({ key, owner: row.granted, first, last, sentAt, before: seen[at]! }, isTold);
      }
      if (owner !== undefined && place) place.asked(sentAt, Number(row.is_taken) === 1 || Number(row.had_place) === 1);
    }
    return [rows, sentAt];
  }

  /** Runs a statement, and repeats it after each error, which has rolled it back: errors are recorded. */
  async #query({ name, text }: PostgresStatement, values: unknown[]): Promise<Row[]> {
    for (;;) {
      try {
        return (await this.#client.query({ name, text, values })).rows as Row[];
      } catch (error) {
        const { code } = error as { code?: string };
        if (code === undefined) throw error;
        this.record.failed(code);
      }
    }
  }

  #key(of: number, kind: string): string {
    return `${kind}-${Math.floor(this.random() * of)}`;
  }

  #owner(): string {
    return `${this.name}-${++this.#sequence}`;
  }
}

/** It had no effect, because another connection held its row. */
function isSkipped(row: Row | undefined): boolean {
  return Number(row?.is_skipped) === 1;
}
