import { setTimeout as pause } from 'node:timers/promises';
import {
  matcherOf,
  type AcquireAnswer,
  type AcquireRequest,
  type ExtendAnswer,
  type ExtendRequest,
  type Grant,
  type Holder,
  type Holding,
  type Listed,
  type ListRequest,
  type PromiseBackend,
  type ReleaseOutcome,
  type Releasing,
  type Taken,
  type Transfer,
  type TransferAnswer,
} from 'nest-redis-lock/backend';

/** The number of fencing tokens per revision of etcd: a grant uses the first ones, and a transfer the last one. */
const TOKENS = 1_024;
/** How long one member may take to answer, and the pause before the next member is tried. */
const [MEMBER_MS, PAUSE_MS] = [1_000, 50];
/** Maximum number of locks that a list reads. */
const MOST_LISTED = 10_000;

export interface EtcdOptions {
  /** The client URLs of all members. */
  endpoints: readonly [string, ...string[]];
  /** The prefix of the keys of the locks. @default 'locks/' */
  prefix?: string;
  /** Time limit of one operation, in milliseconds. It must be longer than an election. Set `commandTimeoutMs` to the same. @default 5000 */
  timeoutMs?: number;
}

/** The value stored for a lock. A free lock has no key. */
interface Stored {
  readonly owner: string;
  /** When its holder acquired it, by the holder's wall clock. It is only for people; nothing depends on it. */
  readonly since: number;
  readonly isKept?: boolean;
  /** Its fencing token; if undefined, the token of the revision that created the key. */
  readonly token?: number;
}
const STORED: (keyof Stored)[] = ['owner', 'since', 'isKept', 'token'];

interface Entry extends Stored {
  readonly key: string;
  readonly token: number;
  readonly lease: string;
  /** The revision that last changed the entry, and the revision of the store when the entry was read. */
  readonly changedAt: string;
  readonly readAt: number;
}

/** The parts of etcd's replies that this class reads. */
interface Reply {
  header: { revision: string };
  kvs?: { key: string; value: string; create_revision: string; mod_revision: string; lease?: string }[];
  more?: boolean;
  responses?: { response_range?: Reply }[];
  ID?: string;
  TTL?: string;
  result?: { created?: boolean; canceled?: boolean; events?: { kv: { key: string } }[] };
  message?: string;
}

/** The error of a command that etcd refuses. If the command is a repetition, an earlier one may have succeeded. */
type Refusal = Error & { status?: number; isRepeated?: boolean };

/**
 * Locks in etcd, over its HTTP gateway. Each lock is a key with its own lease. A release revokes that lease. An extension gives the lock
 * a new lease, and revokes the old one. So a command that etcd runs too late fails, because its lease no longer exists.
 */
export class EtcdLocks implements PromiseBackend {
  readonly name = 'etcd';
  readonly whyOnlyExclusive = 'etcd supports only exclusive locks: keep shared locks and permits in Redis.';
  readonly bounds = {
    shortestTtlMs: { ms: 3_000, because: 'The leases of etcd last a whole number of seconds, at least two.' },
  };
  readonly #endpoints: readonly string[];
  readonly #prefix: string;
  readonly #timeoutMs: number;
  readonly #endsAt = () => performance.now() + this.#timeoutMs;
  /** The index of the member that is tried first. */
  #member = 0;

  constructor({ endpoints, prefix = 'locks/', timeoutMs = 5_000 }: EtcdOptions) {
    this.#endpoints = endpoints;
    this.#prefix = prefix;
    this.#timeoutMs = timeoutMs;
  }

  async acquire({ key, hold, owner, ttlMs, turns = 1 }: AcquireRequest): Promise<AcquireAnswer> {
    if (hold.mode !== 'exclusive') throw new Error(this.whyOnlyExclusive);
    const { entry, isWritten } = await this.#write(key, ttlMs, (found) => {
      if (found && !isHeldBy(found, owner)) return undefined;
      return { since: Date.now(), ...found, owner };
    });
    if (!isWritten) return { status: 'contended', ...(await this.#holder(entry!)) };
    const { token } = entry!;
    return { status: 'acquired', grant: { key, owner, fencingToken: token, lastToken: token + turns - 1 } };
  }

  async extend({ grant: { key, owner }, ttlMs }: ExtendRequest): Promise<ExtendAnswer> {
    const { entry, isWritten } = await this.#write(key, ttlMs, (found) => (isHeldBy(found, owner) ? found : undefined));
    return isWritten ? { status: 'extended' } : lost(entry);
  }

  async release({ key, owner }: Grant, { keepUntil = 0 }: Releasing): Promise<ReleaseOutcome> {
    const keptForMs = keepUntil - performance.now();
    if (keptForMs <= 0) return { status: (await this.#free(key, owner)) ? 'released' : 'gone' };
    const { isWritten } = await this.#write(key, keptForMs, (found) =>
      found?.owner === owner ? { ...found, isKept: true } : undefined,
    );
    return { status: isWritten ? 'released' : 'gone' };
  }

  async transfer({ key, from, to, ttlMs, atLeast, mints }: Transfer): Promise<TransferAnswer> {
    const change = (found?: Entry) => {
      if (!found || isHeldBy(found, to)) return found;
      if (!isHeldBy(found, from)) return undefined;
      // Larger than the tokens of all revisions so far, smaller than the tokens of later revisions.
      return { ...found, owner: to, token: mints ? found.readAt * TOKENS + TOKENS - 1 : found.token };
    };
    const { entry, isWritten } = await this.#write(key, ttlMs, change, atLeast);
    if (!isWritten) return lost(entry);
    return { status: 'transferred', grant: { key, owner: to, fencingToken: entry!.token } };
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const entry = await this.#read(key);
    return entry && { holders: [await this.#holder(entry)] };
  }

  async list({ match, limit, budgetMs }: ListRequest): Promise<Listed> {
    const endsAt = performance.now() + budgetMs;
    const fits = matcherOf(match);
    const reply = await this.#call('kv/range', { ...this.#all, limit: MOST_LISTED });
    const found = this.#entriesOf(reply).filter(({ key }) => fits(key));
    const locks: Listed['locks'] = [];
    for (const entry of found.slice(0, limit)) {
      if (performance.now() > endsAt) break;
      locks.push({ key: entry.key, holding: { holders: [await this.#holder(entry)] } });
    }
    return { locks, complete: !reply.more && locks.length === found.length, scanned: reply.kvs?.length ?? 0 };
  }

  async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const owner = await this.#free(key, from);
    return owner === undefined ? undefined : { from: [owner] };
  }

  /** Yields `undefined` once the watch is complete, and from then on the key of each lock that becomes free. */
  async *watch(signal: AbortSignal): AsyncGenerator<string | undefined> {
    const create_request = { ...this.#all, filters: ['NOPUT'] };
    const { body } = await this.#post(this.#member, 'watch', { create_request }, signal);
    let rest = '';
    for await (const text of body!.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        const { result } = JSON.parse(line) as Reply;
        if (!result || result.canceled) throw new Error(`etcd ended the watch: ${line}`);
        if (result.created) yield undefined;
        for (const { kv } of result.events ?? []) yield this.#keyOf(kv);
      }
    }
  }

  /**
   * Writes the lock that `change` returns, with a new lease. If another command has changed the lock meanwhile, it reads the lock and tries again.
   * It does not use keep-alives: the members agree on a new lease, but not on a keep-alive. An old leader may answer a keep-alive, or end
   * the renewed lease (issue 15247 of etcd-io/etcd).
   */
  async #write(key: string, ttlMs: number, change: (found?: Entry) => Stored | undefined, atLeast = false) {
    const endsAt = this.#endsAt();
    const name = { key: base64(this.#prefix + key) };
    let entry = await this.#read(key, endsAt);
    for (;;) {
      const stored = change(entry);
      if (!stored) return { entry, isWritten: false };
      const leftMs = atLeast && entry ? (await this.#holder(entry, endsAt)).remainingMs : 0;
      const TTL = Math.ceil(Math.max(ttlMs, leftMs) / 1_000);
      const lease = (await this.#call('lease/grant', { TTL }, endsAt)).ID!;
      const put = { ...name, lease, value: base64(JSON.stringify(stored, STORED)) };
      const command = {
        compare: [{ ...name, target: 'MOD', mod_revision: entry?.changedAt ?? '0' }],
        success: [{ request_put: put }, { request_range: name }],
        failure: [{ request_range: name }],
      };
      const { header, responses } = await this.#call('kv/txn', command, endsAt).catch((error: unknown) => {
        if (!entry) this.#leave(lease); // if the command runs later, nobody would know about its lock
        throw error;
      });
      const [found] = this.#entriesOf({ ...responses!.at(-1)!.response_range, header });
      const isWritten = found?.lease === lease; // even if the command ran twice
      const unused = isWritten ? entry?.lease : lease;
      if (unused) this.#leave(unused);
      if (isWritten) return { entry: found, isWritten };
      entry = found;
    }
  }

  /**
   * Revokes the lease of a lock, which also deletes the key. If an extension gave the lock a new lease meanwhile, it revokes that one too.
   * @param from frees the lock only if this owner holds it
   * @returns the owner that held the lock
   */
  async #free(key: string, from?: string): Promise<string | undefined> {
    const endsAt = this.#endsAt();
    let freed: string | undefined;
    for (;;) {
      const entry = await this.#read(key, endsAt);
      if (!entry || entry.owner !== (freed ?? from ?? entry.owner)) return freed;
      try {
        await this.#call('lease/revoke', { ID: entry.lease }, endsAt);
        freed = entry.owner;
      } catch (error) {
        const { status, isRepeated } = error as Refusal;
        if (status !== 404) throw error;
        if (isRepeated) freed = entry.owner;
      }
    }
  }

  async #read(key: string, endsAt?: number): Promise<Entry | undefined> {
    return this.#entriesOf(await this.#call('kv/range', { key: base64(this.#prefix + key) }, endsAt))[0];
  }

  async #holder({ owner, token, since, isKept, lease }: Entry, endsAt?: number): Promise<Holder> {
    const { TTL } = await this.#call('lease/timetolive', { ID: lease }, endsAt);
    // etcd rounds down, leaves 0 out, and returns -1 for an expired lease.
    const remainingMs = (Number(TTL ?? 0) + 1) * 1_000;
    return { owner, fencingToken: token, remainingMs, heldForMs: Math.max(0, Date.now() - since), isKept };
  }

  /** Revokes a lease that no lock uses any more. If that fails, the lease expires by itself. */
  #leave(lease: string): void {
    this.#call('lease/revoke', { ID: lease }).catch(() => {});
  }

  /** Sends a command to one member after another until one of them answers. So the command may run more than once. @throws Error */
  async #call(path: string, body: object, endsAt = this.#endsAt()): Promise<Reply> {
    for (let isRepeated = false; ; isRepeated = true) {
      const member = this.#member;
      try {
        const limitMs = Math.max(1, Math.min(MEMBER_MS, Math.ceil(endsAt - performance.now())));
        const response = await this.#post(member, path, body, AbortSignal.timeout(limitMs));
        const reply = (await response.json()) as Reply;
        if (response.ok) return reply;
        throw Object.assign(new Error(reply.message), { status: response.status, isRepeated });
      } catch (error) {
        const isRefused = [400, 401, 403, 404, 412].includes((error as Refusal).status ?? 0);
        if (isRefused || performance.now() + PAUSE_MS >= endsAt) throw error;
        if (member === this.#member) this.#member = (member + 1) % this.#endpoints.length;
        await pause(PAUSE_MS);
      }
    }
  }

  #post(member: number, path: string, body: object, signal: AbortSignal): Promise<Response> {
    const url = new URL(`/v3/${path}`, this.#endpoints[member]);
    return fetch(url, { method: 'POST', body: JSON.stringify(body), signal });
  }

  /** The range of all keys that begin with the prefix. */
  get #all() {
    const end = Buffer.from(this.#prefix);
    end[end.length - 1]! += 1;
    return { key: base64(this.#prefix), range_end: end.toString('base64') };
  }

  #entriesOf({ header, kvs = [] }: Reply): Entry[] {
    return kvs.map((kv) => ({
      token: Number(kv.create_revision) * TOKENS,
      ...(JSON.parse(text(kv.value)) as Stored),
      key: this.#keyOf(kv),
      lease: kv.lease ?? '0',
      changedAt: kv.mod_revision,
      readAt: Number(header.revision),
    })) as Entry[];
  }

  #keyOf({ key }: { key: string }): string {
    return text(key).slice(this.#prefix.length);
  }
}

function isHeldBy(entry: Entry | undefined, owner: string): boolean {
  return entry?.owner === owner && !entry.isKept;
}

function lost(entry: Entry | undefined): { status: 'lost'; reason: 'stolen' | 'expired' } {
  return { status: 'lost', reason: entry ? 'stolen' : 'expired' };
}

const base64 = (plain: string) => Buffer.from(plain).toString('base64');
const text = (encoded: string) => Buffer.from(encoded, 'base64').toString();
