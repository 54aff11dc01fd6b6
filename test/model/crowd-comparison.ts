// oxlint-disable vitest/no-standalone-expect -- tests call these
import { expect } from 'vitest';
import type { Hold } from '../../lib/testing/index.js';
import { readMessage } from '../../lib/stores/node/messages.js';
import { readCrowd, readValue } from '../../lib/stores/redis/node/lock-keys.js';
import { crowdArgs, crowdEntry, HEARD, queueEntry } from '../../lib/stores/redis/scripts/hand-off.js';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { RedisData } from '../simulation/redis/redis-data.js';
import { RedisEngine } from '../simulation/redis/redis-engine.js';
import { randomOf } from '../support/random.js';
import { CrowdModel, type ModelHolder } from './crowd.js';

const STEPS = 60;
const FIRST_US = 1_800_000_000_000_000;
const KEYS = ['lock:fence', 'lock:{k}', 'lock:{k}:queue'];
const [, LOCK, QUEUE] = KEYS as [string, string, string];
const TTLS_MS = [300, 1_500, 5_000];
const EXCLUSIVE: Hold = { mode: 'exclusive' };
const HOLDS: readonly Hold[] = [
  EXCLUSIVE,
  { mode: 'shared' },
  { mode: 'shared' },
  { mode: 'permits', permits: 1, limit: 2 },
  { mode: 'permits', permits: 1, limit: 3 },
  { mode: 'permits', permits: 2, limit: 4 },
];

/** A place that a process waits in, or a lock that it holds, as far as it knows. */
interface Claim {
  readonly owner: string;
  readonly process: string;
  readonly hold: Hold;
  readonly number: number;
  isPlaced: boolean;
}

/** The scripts, one of which may be broken on purpose. */
export type Scripts = Record<keyof typeof LUA, Script>;

/** Runs the scripts and the model side by side. */
class Comparison {
  readonly model = new CrowdModel(FIRST_US);
  readonly trail: string[] = [];
  readonly #data = new RedisData({ nowUs: () => this.model.nowUs });
  readonly #engine = new RedisEngine(this.#data);
  readonly #random: () => number;
  readonly #heard: string[] = [];
  #claims: Claim[] = [];
  #processes: string[] = [];
  #count = 0;
  #lastToken = 0;
  #phase = 0;
  #phaseToken?: number;
  /** Those who gave back what they had no more: the lock may have forgotten them. */
  readonly #forgotten = new Set<string>();

  constructor(
    seed: number,
    private readonly scripts: Scripts,
  ) {
    this.#random = randomOf(seed);
    for (let each = 0; each < 3; each++) this.#begin();
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)]!;
  }

  #begin(): void {
    const process = `host/${++this.#count}`;
    const push = ([kind, , message]: readonly (string | number)[]) => {
      if (kind === 'message') this.#heard.push(String(message));
    };
    this.#engine.execute(['SUBSCRIBE', `inbox:${process}`], { push });
    this.model.listening.add(process);
    this.#processes.push(process);
  }

  /** It dies without a word: what it holds stays, and so do its places. */
  #end(process: string): void {
    this.#data.channels.delete(`inbox:${process}`);
    this.model.listening.delete(process);
    this.#processes = this.#processes.filter((other) => other !== process);
    this.#claims = this.#claims.filter((claim) => claim.process !== process);
  }

  #run(script: Script, ...args: (string | number)[]): unknown {
    const keys = script.sharedKeys === 0 ? [LOCK] : script.name === 'acquire' ? KEYS.slice(0, 2) : KEYS;
    const reply = this.#engine.execute(['EVAL', script.source, String(keys.length), ...keys, ...args.map(String)]);
    if (reply instanceof Error) throw reply;
    return reply;
  }

  step(): void {
    const claims = this.#claims;
    const claim = this.#pick(claims);
    const kind = this.#random();
    if (kind < 0.16) this.#advance();
    else if (kind < 0.34 || !claim) this.#ask(this.#newClaim());
    else if (kind < 0.56) this.#ask(claim);
    else if (kind < 0.74) this.#release(claim);
    else if (kind < 0.84) this.#extend(claim);
    else if (kind < 0.91) this.#withdraw(claim);
    else if (kind < 0.94) this.#forceRelease(this.#pick([undefined, claim.owner]));
    else if (kind < 0.97) this.#acquire();
    else {
      this.trail.push(`${claim.process} dies`);
      this.#end(claim.process);
      this.#begin();
    }
    this.#compare();
  }

  #newClaim(): Claim {
    const process = this.#pick(this.#processes);
    // Some come late with an early number.
    this.model.advance(1);
    const number = this.model.nowUs - (this.#random() < 0.3 ? Math.floor(this.#random() * 400_000) : 0);
    const claim = { owner: `${process}/r/${++this.#count}`, process, hold: this.#pick(HOLDS), number, isPlaced: false };
    this.#claims.push(claim);
    return claim;
  }

  #advance(us = this.#pick([1_000, 100_000, 300_000, 1_000_000, 2_100_000])): void {
    this.trail.push(`${us / 1_000} ms later`);
    this.model.advance(us);
    // The processes that live give their signs.
    if (us < 1_000_000) return;
    for (const claim of this.#claims.filter(({ isPlaced }) => isPlaced)) {
      this.#compare();
      this.#ask(claim);
    }
  }

  #ask(claim: Claim): void {
    const { owner, process, hold, number } = claim;
    const { model } = this;
    this.model.advance(1);
    const ttlMs = this.#pick(TTLS_MS);
    const given = this.#pick(this.#claims.filter((other) => other !== claim && isSame(other, claim)));
    const give = given && this.#random() < 0.3 ? given.owner : undefined;
    const hasPlace = claim.isPlaced || this.#random() < 0.8;
    const others =
      hold.mode === 'permits' && this.#random() < 0.3 ? [1, 2].map(() => `${process}/r/${++this.#count}`) : [];
    this.trail.push(
      `${owner} asks for ${JSON.stringify(hold)}, ${ttlMs} ms, ${hasPlace ? `number ${number - FIRST_US}` : 'no place'}, gives ${give}, others ${others.join()}`,
    );
    if (give !== undefined) {
      this.#drop(give);
      this.#forgotten.add(give);
    }
    const wasHeld = model.holders.some((holder) => holder.owner === owner);
    const place = hasPlace ? { process, number: Math.min(number, model.nowUs) } : undefined;
    const answer = model.ask({ owner, hold, ttlMs, give, others, place });
    const entry = place ? entryOf(claim) : '';
    const end = [entry, place ? number : '', claim.isPlaced ? 1 : 0, 1];
    const reply = (
      hold.mode === 'exclusive'
        ? this.#run(this.scripts.TURN, HEARD, give ? `${give}@` : '', `${owner}@`, ttlMs, 1, ...end)
        : this.#run(this.scripts.CROWD, HEARD, give ?? '', owner, ttlMs, ...crowdArgs(hold), ...end, others.join(' '))
    ) as (number | string)[];
    const isGranted = reply[0] === 1;
    expect({ granted: isGranted, gave: reply[1] }).toEqual({ granted: answer.granted, gave: answer.gave });
    if (isGranted && hold.mode !== 'exclusive') {
      expect(reply[4]).toBe(answer.others);
      if (hold.mode === 'permits') expect(reply[6]).toBe(model.smallestLimit);
      expect(Number(reply[3]) > 0).toBe(hold.mode === 'shared');
      others.slice(0, answer.others).forEach((other, at) => {
        this.#claims.push({ ...claim, owner: other, number: number - at - 1, isPlaced: false });
      });
    }
    // Nobody who is there was before it.
    if (isGranted && !wasHeld) {
      const before = model.queue.filter((each) => each.number < number && model.listening.has(each.process));
      expect({ before: before.filter((each) => !model.isSilent(each.process)) }).toEqual({ before: [] });
    }
    if (!isGranted) {
      const [, , , leftMs, value] = reply;
      const first = Math.min(...model.holders.map((holder) => holder.end));
      const last = Math.max(...model.holders.map((holder) => holder.end));
      // Whoever could hold it beside those that are left has to wait for one of them, others for all.
      const isOfTheirs = hold.mode === model.holders[0]!.hold.mode;
      const expected = (isOfTheirs ? first : last) - model.ms;
      expect(expected === 0 ? [0, 1] : [expected]).toContain(leftMs);
      expect(model.holders.map((holder) => holder.owner)).toContain(readValue(String(value)).owner);
      const besides = reply[hold.mode === 'exclusive' ? 6 : 7] ?? 0;
      expect(besides).toBe(model.holders.length - 1);
    }
    claim.isPlaced = !isGranted && hasPlace;
    if (!isGranted && !hasPlace) this.#drop(owner);
    this.#expectNoRoom();
  }

  #acquire(): void {
    if (this.#held().length === 0 && this.#engine.execute(['GET', LOCK]) !== null) return; // it is just over
    const process = this.#pick(this.#processes);
    const claim: Claim = {
      owner: `${process}/r/${++this.#count}`,
      process,
      hold: EXCLUSIVE,
      number: 0,
      isPlaced: false,
    };
    this.trail.push(`${claim.owner} acquires`);
    this.model.advance(1);
    const granted = this.model.acquire(claim.owner, 1_500);
    expect(typeof this.#run(this.scripts.ACQUIRE, 1_500, `${claim.owner}@`) === 'string').toBe(granted);
    if (granted) this.#claims.push(claim);
  }

  #release({ owner, hold, isPlaced }: Claim): void {
    if (isPlaced) return;
    this.trail.push(`${owner} gives back`);
    this.#drop(owner);
    const expected = this.model.release(owner);
    const { RELEASE, CROWD } = this.scripts;
    const reply =
      hold.mode === 'exclusive'
        ? this.#run(RELEASE, `${owner}@`)
        : this.#run(CROWD, HEARD, owner, '', 0, ...crowdArgs(hold), '', '', 0, 0, '');
    expect(reply).toBe(expected);
    if (expected === 1 && hold.mode !== 'exclusive') this.#expectNoRoom();
  }

  #extend({ owner, hold }: Claim): void {
    const ttlMs = this.#pick(TTLS_MS);
    this.trail.push(`${owner} extends for ${ttlMs} ms`);
    const expected = this.model.extend(owner, ttlMs);
    const { EXTEND, EXTEND_CROWD } = this.scripts;
    const reply =
      hold.mode === 'exclusive' ? this.#run(EXTEND, ttlMs, `${owner}@`) : this.#run(EXTEND_CROWD, ttlMs, owner);
    if (!this.#forgotten.has(owner)) expect(reply).toBe(expected);
  }

  #withdraw(claim: Claim): void {
    this.trail.push(`${claim.owner} withdraws`);
    this.#drop(claim.owner);
    const wasTogether = this.model.holders.some(({ hold }) => hold.mode !== 'exclusive');
    const expected = this.model.withdraw(claim.owner);
    expect(this.#run(this.scripts.WITHDRAW, `${claim.owner}@`, entryOf(claim))).toBe(expected ? 1 : 0);
    if (expected || wasTogether) this.#expectNoRoom();
  }

  #forceRelease(from?: string): void {
    this.trail.push(`taken from ${from ?? 'all'}`);
    const taken = this.model.forceRelease(from);
    const reply = this.#run(this.scripts.FORCE_RELEASE, 'inbox:', 'k', from ?? '') as unknown;
    if (taken.length === 0) expect(reply).toBe(0);
    else if (Array.isArray(reply) && reply[0] === 2) expect(reply.slice(1)).toEqual(taken);
    else expect([readValue(String((reply as unknown[])[1])).owner]).toEqual(taken);
    if (taken.length > 0) this.#expectNoRoom();
  }

  #drop(owner: string): void {
    this.#claims = this.#claims.filter((claim) => claim.owner !== owner);
  }

  /** Nobody who is there waits for what is free. */
  #expectNoRoom(): void {
    const [first] = this.#places();
    const place = first && this.model.queue.find((each) => each.ticket === first);
    if (!place || !this.model.listening.has(place.process)) return;
    const held = this.#held();
    const alone = new CrowdModel(this.model.nowUs);
    alone.holders = held;
    expect({ first, held, fits: alone.fits(place.hold) }).toMatchObject({ fits: false });
  }

  #places(): string[] {
    const entries = this.#engine.execute(['ZRANGE', QUEUE, '0', '+inf', 'BYSCORE']) as string[];
    return entries.map((entry) => entry.split(' ')[2]!.replace(/~\d+$/, ''));
  }

  /** Who holds it, as Redis has it. */
  #held(): ModelHolder[] {
    const value = this.#engine.execute(['GET', LOCK]) as string | null;
    if (value === null) return [];
    const crowd = readCrowd(value);
    const endsIn = this.#engine.execute(['PTTL', LOCK]) as number;
    if (!crowd) return [{ owner: readValue(value).owner, hold: EXCLUSIVE, end: this.model.ms + endsIn }];
    const live = crowd.members.filter(({ endsAt }) => endsAt >= this.model.ms);
    // The key of a lock that is written in the last millisecond of its holders stands for one more.
    if (live.length > 0 && endsIn > 1)
      expect(this.model.ms + endsIn).toBe(Math.max(...live.map(({ endsAt }) => endsAt)));
    return live.map(({ owner, endsAt, permits, limit }) => ({
      owner,
      hold: crowd.mode === 'shared' ? { mode: 'shared' } : { mode: 'permits', permits, limit },
      end: endsAt,
    }));
  }

  #compare(): void {
    const held = this.#held();
    const waiting = this.#places();
    const { model } = this;
    expect({ held, waiting }).toEqual({ held: model.holders, waiting: model.queue.map(({ ticket }) => ticket) });
    // They fit pairwise, whatever the model says.
    const permits = held.flatMap(({ hold }) => (hold.mode === 'permits' ? [hold] : []));
    expect(permits.reduce((sum, hold) => sum + hold.permits, 0)).toBeLessThanOrEqual(
      Math.min(Infinity, ...permits.map(({ limit }) => limit)),
    );
    expect(new Set(held.map(({ hold }) => hold.mode)).size).toBeLessThanOrEqual(1);
    this.#compareTokens(held);
    const told = this.#heard.splice(0).map((text) => readMessage(text));
    const grants = told.filter(({ takenKey }) => takenKey === undefined);
    const isAsker = (ticket: string) => this.trail.some((line) => line.startsWith(`${ticket} asks`));
    // One who asks may be told of it as well as answered.
    const expected = model.told.splice(0);
    expect(
      grants.map(({ ticket }) => ticket).filter((ticket) => expected.includes(ticket) || !isAsker(ticket)),
    ).toEqual(expected);
    for (const { ticket, grant } of grants) {
      expect({ ticket, grant }).toEqual({ ticket, grant: expect.objectContaining({}) });
      const [next] = model.queue;
      if (expected.includes(ticket)) expect(grant!.boundUs).toBe(next ? next.number : model.nowUs);
    }
  }

  #compareTokens([first]: readonly ModelHolder[]): void {
    if (!first) return;
    const { phase } = this.model;
    const { fencingToken } = readValue(this.#engine.execute(['GET', LOCK]) as string);
    expect(fencingToken === undefined).toBe(first.hold.mode === 'permits');
    if (phase === this.#phase && first.hold.mode === 'shared') expect(fencingToken).toBe(this.#phaseToken);
    if (phase !== this.#phase && fencingToken !== undefined) expect(fencingToken).toBeGreaterThan(this.#lastToken);
    this.#phase = phase;
    this.#phaseToken = fencingToken;
    this.#lastToken = Math.max(this.#lastToken, fencingToken ?? 0);
  }

  /** Those who are there give up, and the rest ends by itself. */
  end(): void {
    for (const claim of this.#claims) {
      if (claim.isPlaced) this.#withdraw(claim);
      else this.#release(claim);
      this.#compare();
    }
    const hasDead = this.model.queue.length + this.model.holders.length > 0;
    if (hasDead) this.#advance(20_000_000);
    expect(this.#data.names.filter((name) => name !== KEYS[0])).toEqual([]);
  }
}

function entryOf({ owner, process, hold }: Claim): string {
  const channel = `inbox:${process}`;
  return hold.mode === 'exclusive' ? queueEntry('grant', channel, owner, 1) : crowdEntry(hold, channel, owner);
}

function isSame(a: Claim, b: Claim): boolean {
  return a.process === b.process && a.hold.mode === b.hold.mode && !a.isPlaced;
}

/** @throws what differs first, with the steps that led to it */
export function compare(sequences: number, seed: number, scripts: Scripts = LUA): void {
  for (let sequence = 0; sequence < sequences; sequence++) {
    const comparison = new Comparison(seed + sequence, scripts);
    try {
      for (let step = 0; step < STEPS; step++) comparison.step();
      comparison.end();
    } catch (error) {
      const trail = comparison.trail.slice(-12).join('\n');
      throw new Error(`CROWD_SEED=${seed + sequence}, after:\n${trail}\n${(error as Error).message}`, { cause: error });
    }
  }
}
