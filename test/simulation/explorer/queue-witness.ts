import type { Reply } from '../redis/replies.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import { SortedSet } from '../redis/sorted-set.js';
import { crowdOf } from './witness.js';

/** A place in a queue, as far as it decides who gets the lock. */
interface Place {
  readonly kind: string;
  readonly permits: number;
  readonly limit: number;
  readonly ticket: string;
  /** Its number, in microseconds. */
  readonly at: number;
}

/** Places that are closer to each other may change their order: an estimated clock numbers them. In microseconds. */
const SAME_TIME_US = 50_000;

/**
 * Checks the queues of a server after each of its scripts: nobody gets a lock while an earlier place waits, and a grant
 * to hold a lock together with others leaves nobody waiting who fits, too.
 */
export class QueueWitness {
  /** The scripts that serve waiting calls when they ask for a lock. */
  readonly serving = new Set<string>();
  /** By server and queue, as it was after the last script. */
  readonly #places = new Map<string, readonly Place[]>();

  constructor(private readonly complain: (rule: string, text: string) => void) {}

  /**
   * A script has run, on a server that has not lost anything yet.
   * @param args the arguments after the keys
   */
  ran(server: SimulatedServer, sha: string, keys: readonly string[], args: readonly string[], reply: Reply): void {
    const numbers = numbersOf(args);
    const queues = keys.filter((key) => key.endsWith(':queue'));
    for (const queue of queues) {
      const id = `${server.port} ${queue}`;
      const lock = server.data.entry(queue.slice(0, -':queue'.length))?.value;
      const places = placesOf(server.data.entry(queue)?.value);
      const before = (this.#places.get(id) ?? []).map((place) => {
        const at = Math.min(place.at, numbers.get(place.ticket) ?? Infinity);
        return { ...place, at };
      });
      this.#checkOrder(id, before, places, lock);
      if (this.serving.has(sha) && queues.length === 1 && hasAsked(reply)) this.#checkRoom(id, server, places[0], lock);
      this.#places.set(id, places);
    }
  }

  #checkOrder(id: string, before: readonly Place[], places: readonly Place[], lock: unknown): void {
    const stands = new Map(places.map((place) => [place.ticket, place]));
    const owners = ownersOf(lock);
    for (const served of before) {
      if (stands.has(served.ticket) || !owners.includes(served.ticket)) continue;
      const isEarlier = (place: Place | undefined) => place !== undefined && place.at < served.at - SAME_TIME_US;
      const passed = before.find((place) => isEarlier(place) && isEarlier(stands.get(place.ticket)));
      if (passed) this.complain('served before an earlier place', `${id}: ${served.ticket} before ${passed.ticket}`);
    }
  }

  #checkRoom(id: string, server: SimulatedServer, head: Place | undefined, lock: unknown): void {
    const [crowd] = crowdOf(lock);
    if (!head || (lock !== undefined && !crowd) || server.refusal !== undefined) return;
    const nowMs = Math.floor(server.clockUs() / 1_000);
    const holders = crowd?.holders.filter(({ end }) => end >= nowMs) ?? [];
    const used = holders.reduce((sum, { permits }) => sum + permits, head.permits);
    const limit = holders.reduce((least, holder) => Math.min(least, holder.limit), head.limit);
    const fits = head.kind === 's' ? crowd?.isOfReaders : head.kind === 'p' && !crowd?.isOfReaders && used <= limit;
    if (holders.length === 0 || fits) this.complain('room that nobody was given', `${id}: ${head.ticket} waits`);
  }
}

const ENTRY = /^([gsp])(?:(\d+)\/(\d+))? \S+ (.+?)(?:~\d+)?$/;

/**
 * The number, after its entry, by which the place of a ticket counts from now on: the asking process may know it better
 * than before.
 */
function numbersOf(args: readonly string[]): Map<string, number> {
  const numbers = new Map<string, number>();
  args.forEach((entry, index) => {
    const ticket = ENTRY.exec(entry)?.[4];
    const number = Number(args[index + 1]);
    if (ticket !== undefined && number > 0) numbers.set(ticket, number);
  });
  return numbers;
}

export function placesOf(queue: unknown): Place[] {
  if (!(queue instanceof SortedSet)) return [];
  return queue.members.flatMap(([entry, at]) => {
    const [, kind, permits = '1', limit = '0', ticket] = ENTRY.exec(entry) ?? [];
    if (at < 0 || kind === undefined || ticket === undefined) return [];
    return [{ kind, permits: Number(permits), limit: Number(limit), ticket, at }];
  });
}

function ownersOf(lock: unknown): string[] {
  if (typeof lock !== 'string') return [];
  return lock.startsWith('~')
    ? crowdOf(lock).flatMap(({ holders }) => holders.map(({ owner }) => owner))
    : [lock.slice(0, lock.lastIndexOf('@'))];
}

/** Whether a call asked, and was answered: it did more than release a lock, and there was no error. */
function hasAsked(reply: Reply): boolean {
  return Array.isArray(reply) && reply.length > 2;
}
