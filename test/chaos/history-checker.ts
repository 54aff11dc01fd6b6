import { CALM_KEY, of, processOf, type Entry, type EntryOf, type LossKind, type Revived } from './history.js';
import { holdingsOf, type Holding } from './holdings.js';
import { shutOut } from './liveness.js';

export const RULES = [
  'lost update',
  'token out of order at the resource',
  'token given twice',
  'token not above the token of an earlier holder',
  'overlapping holders',
  'reader without a token',
  'two tokens among readers',
  'more permits than the limit',
  'held for too long',
  'passed on after a loss',
  'lock left behind',
  'unhandled rejection',
  'operation without an end',
  'no lock after the nemesis',
  'nobody inside after a server went back',
  'event loop stood still',
] as const;
export type Rule = (typeof RULES)[number];

/** Clocks may run slower than the clock of the history by this factor. */
const DRIFT = 1.01;

/** The limits of a history. */
export interface Terms {
  /** The faults after which the topology may lose a held lock: two holders are allowed after such a fault. */
  losses: readonly LossKind[];
  /**
   * Within this time after the nemesis, each worker must get a lock again that it had to wait for, and each call that
   * waits until it is served must be answered.
   */
  livenessMs: number;
  /** An acquire must settle within this time of its running process. */
  answerMs: number;
  /** The longest pause of the event loop in a process that is not stopped. */
  beatMs: number;
  /**
   * Within this time after a server went back to old data, somebody holds each lock that a call waits for.
   * @default not checked
   */
  regainMs?: number;
  /**
   * The longest time from a grant until it is written down.
   * @default 100, as on a busy machine
   */
  slackMs?: number;
}

export interface Violation {
  rule: Rule;
  text: string;
}

export interface Verdict {
  violations: Violation[];
  figures: {
    operations: number;
    refusedAcquires: number;
    faults: number;
    acceptedWrites: number;
    /** The number of these by transactions that guarded the lock. */
    guardedWrites: number;
    refusedAccesses: number;
    /** Two holders after a fault that may lose a lock. */
    allowedOverlaps: number;
    /** Tokens of a lock that was passed on within a process that did not yet know that a fault had lost it. */
    allowedTokens: number;
    /** Holders of a lock that others already held. */
    readers: number;
    permits: number;
    downgraded: number;
    adopted: number;
    /** Holders whose work took longer than their `maxHoldMs`. */
    overstayed: number;
  };
}

/** Finds the errors in a history. Depends only on its arguments. */
export function checkHistory(entries: readonly Entry[], terms: Terms): Verdict {
  const history = [...entries].sort((a, b) => a.at - b.at);
  const faults = of(history, 'fault');
  const granted = of(history, 'granted');
  const holdings = holdingsOf(history);
  const lossy = faults.filter(({ kind }) => terms.losses.includes(kind));
  const forced = forcedOf(history);
  const losses: Loss[] = [...lossy, ...forced];
  const { slackMs = 100 } = terms;
  const holders = overlaps(holdings, losses);
  const tokens = tokensBehind(holdings, losses, slackMs);
  const tokenTwins = sameTokens(holdings, losses);
  return {
    violations: [
      ...lostUpdates(history, tokenTwins.allowed),
      ...disorderAtResource(history),
      ...tokenTwins.forbidden,
      ...tokens.forbidden,
      ...holdings
        .filter(lacksToken)
        .map(({ key, turn }) => violation('reader without a token', `${key}: turn ${turn}`)),
      ...holders.forbidden,
      ...heldTooLong(holdings, slackMs),
      ...passedOn(holdings, lossy, forced, slackMs),
      ...of(history, 'left-behind').map(({ node, key }) => violation('lock left behind', `${key} on node ${node}`)),
      ...of(history, 'unhandled').map(({ worker, message }) =>
        violation('unhandled rejection', `worker ${worker}: ${message}`),
      ),
      ...endless(history, terms),
      ...lifeless(history, terms.livenessMs),
      ...notRegained(history, holdings, lossy, terms.regainMs),
      ...standstills(history, terms.beatMs),
    ],
    figures: {
      operations: holdings.length,
      refusedAcquires: of(history, 'refused').length,
      faults: faults.length,
      acceptedWrites: of(history, 'write').filter(({ accepted }) => accepted).length,
      guardedWrites: of(history, 'write').filter(({ isGuarded }) => isGuarded).length,
      refusedAccesses: accessesOf(history).filter(({ accepted }) => !accepted).length,
      allowedOverlaps: holders.allowed,
      allowedTokens: tokens.allowed,
      ...holders.together,
      downgraded: granted.filter(({ came }) => came === 'downgraded').length,
      adopted: granted.filter(({ came }) => came === 'adopted').length,
      overstayed: of(history, 'ended').filter(({ how }) => how === 'overstayed').length,
    },
  };
}

/** The last write of each forced release. */
function forcedOf(history: readonly Entry[]): EntryOf<'forced'>[] {
  const entries = of(history, 'forced');
  return [...new Map(entries.map((entry) => [`${entry.process} ${entry.at} ${entry.key}`, entry])).values()];
}

/**
 * An accepted write that adds to a value other than the current one undoes the writes in between.
 * @param excused turns with a token that two primaries gave: a resource cannot distinguish them
 */
function lostUpdates(history: readonly Entry[], excused: ReadonlySet<string>): Violation[] {
  const values = new Map<string, number>();
  return of(history, 'write').flatMap(({ key, turn, base, accepted }) => {
    if (!accepted) return [];
    const value = values.get(key) ?? 0;
    values.set(key, base + 1);
    return base === value || excused.has(turn)
      ? []
      : [violation('lost update', `${key}: turn ${turn} made ${base + 1} of ${value}`)];
  });
}

function disorderAtResource(history: readonly Entry[]): Violation[] {
  const highest = new Map<string, number>();
  return accessesOf(history).flatMap(({ key, turn, token, accepted }) => {
    if (!accepted || token === undefined) return [];
    const seen = highest.get(key) ?? 0;
    highest.set(key, Math.max(seen, token));
    return token >= seen
      ? []
      : [violation('token out of order at the resource', `${key}: ${token} of turn ${turn} after ${seen}`)];
  });
}

/** Two simultaneous primaries may give the same token, in the same microsecond. */
function sameTokens(all: readonly Holding[], losses: readonly Loss[]) {
  const forbidden: Violation[] = [];
  const allowed = new Set<string>();
  for (const holdings of byKey(all)) {
    const given = new Map<number, Holding>();
    for (const holding of holdings) {
      const { key, turn, token } = holding;
      if (token === undefined) continue;
      const other = given.get(token);
      given.set(token, holding);
      if (!other || areReaders(other, holding)) continue;
      const twins = [other, holding];
      if (losses.some((loss) => twins.every((each) => isOfTwoPrimaries(loss, each, all))))
        for (const each of twins) allowed.add(each.turn);
      else forbidden.push(violation('token given twice', `${key}: ${token} to ${other.turn} and ${turn}`));
    }
  }
  return { forbidden, allowed };
}

/** A lock may be lost while it is held. */
interface Loss {
  kind?: LossKind;
  at: number;
  until: number;
  /** All faults, if there is none. */
  key?: string;
  revived?: Revived;
}

interface Judgement {
  forbidden: Violation[];
  allowed: number;
}

/**
 * A turn that asked after another one got the lock has a larger token; a reader has the same token as another reader.
 */
function tokensBehind(all: readonly Holding[], losses: readonly Loss[], slackMs: number): Judgement {
  const behind = byKey(all).flatMap(behindEarlier);
  const isExcused = ([earlier, later]: [Holding, Holding]) =>
    losses.some(
      (loss) =>
        excusesToken(loss, earlier, later, slackMs) ||
        [earlier, later].every((each) => isOfTwoPrimaries(loss, each, all)) ||
        bringsBack(loss, later, all) ||
        isGrantedAgain(loss, later),
    );
  const forbidden = behind
    .filter((pair) => !isExcused(pair))
    .map(([earlier, { key, turn, token }]) => {
      const text = `${key}: ${token} of turn ${turn}, which asked when ${earlier.turn} had ${earlier.token}`;
      return violation('token not above the token of an earlier holder', text);
    });
  return { forbidden, allowed: behind.length - forbidden.length };
}

/** Each turn with the turn that had the largest token when it asked. */
function behindEarlier(holdings: readonly Holding[]): [earlier: Holding, later: Holding][] {
  const granted = [...holdings].sort((a, b) => a.from - b.from);
  let known = 0;
  let highest: Holding | undefined;
  return [...holdings]
    .sort((a, b) => a.askedAt - b.askedAt)
    .flatMap((holding) => {
      for (; granted[known] && granted[known]!.from < holding.askedAt; known++) {
        if ((granted[known]!.token ?? 0) > (highest?.token ?? 0)) highest = granted[known];
      }
      if (!highest || holding.token === undefined || holding.token > highest.token!) return [];
      return holding.token === highest.token && areReaders(highest, holding) ? [] : [[highest, holding]];
    });
}

/**
 * A process that held the lock before the fault may pass it on among its turns until it notices, because no extension
 * succeeds from then on. A grant of Redis after the fault has a larger token.
 */
function excusesToken(loss: Loss, earlier: Holding, later: Holding, slackMs: number): boolean {
  const { at, until, key } = loss;
  if (key !== undefined && key !== later.key) return false;
  return later.leaseFrom <= until && at <= earlier.from && later.from <= noticedBy(loss, later, slackMs);
}

/**
 * Until when a process may pass on a lock that it has lost: it asks after a third of the ttl. A restart has also cost
 * it its connection, and it asks when it has a new one: until then its lease may run.
 */
function noticedBy({ kind, until }: Loss, { ttlMs }: Holding, slackMs: number): number {
  const hasToConnect = kind === 'restart-empty' || kind === 'restart-old';
  return until + (hasToConnect ? ttlMs : ttlMs / 3) + slackMs;
}

/**
 * While two primaries serve, each gives its own tokens. A lease, or a phase of readers, that began then keeps its token
 * as long as it lasts, on the primary that remains.
 */
function isOfTwoPrimaries(
  { kind, at, until }: Loss,
  { key, token, owner, from }: Holding,
  all: readonly Holding[],
): boolean {
  if (kind !== 'swap-primary' || from < at) return false;
  const isSame = (other: Holding) =>
    other.key === key && (other.token === token || (owner !== undefined && other.owner === owner));
  return all.some((other) => isSame(other) && other.askedAt <= until);
}

/**
 * A server that goes back to old data may restore readers who had left. A call that shares the lock then gets their
 * token, as long as they or later readers share it. If nobody looked at that data, they were readers who had asked
 * before.
 */
function bringsBack({ kind, at, revived }: Loss, later: Holding, all: readonly Holding[]): boolean {
  if (!goesBack({ kind }) || later.from < at) return false;
  const { key, token } = later;
  if (later.hold?.mode !== 'shared' || token === undefined) return false;
  if (revived) return revived.tokens.includes(token);
  const had = all.filter((other) => other.key === key && other.token === token && areReaders(other));
  return had.some(({ askedAt }) => askedAt < at);
}

/**
 * A server that goes back to old data may grant a lock again to a call that waited then, and was granted it in the
 * meantime: its lease, which it can extend, has the token of the first of these grants.
 */
function isGrantedAgain({ until, revived }: Loss, { owner = '', leaseFrom }: Holding): boolean {
  return revived !== undefined && revived.tickets.includes(owner) && leaseFrom <= until;
}

function overlaps(all: readonly Holding[], losses: readonly Loss[]) {
  const forbidden: Violation[] = [];
  const together = { readers: 0, permits: 0 };
  const isOfOldPlace = (holding: Holding) => losses.some((loss) => isGrantedAgain(loss, holding));
  let allowed = 0;
  for (const holdings of byKey(all)) {
    let open: Holding[] = [];
    for (const later of [...holdings].sort((a, b) => a.from - b.from)) {
      open = open.filter(({ to }) => to > later.from);
      if (later.to <= later.from) continue;
      const isBeside = open.some(({ hold }) => hold && hold.mode === later.hold?.mode);
      if (isBeside) together[later.hold?.mode === 'shared' ? 'readers' : 'permits']++;
      const certain = open.filter((earlier) => !losses.some((loss) => excuses(loss, earlier, later)));
      for (const earlier of open) {
        const rule = brokenBy(earlier, later);
        if (rule === undefined) continue;
        const hasOldToken = rule === 'two tokens among readers' && [earlier, later].some(isOfOldPlace);
        if (certain.includes(earlier) && !hasOldToken) forbidden.push(violation(rule, overlapText(earlier, later)));
        else allowed++;
      }
      if (exceedLimit([...certain, later]))
        forbidden.push(violation('more permits than the limit', permitsText([...certain, later]))); // prettier-ignore
      else if (exceedLimit([...open, later])) allowed++;
      open.push(later);
    }
  }
  return { forbidden, allowed, together };
}

/** The rule that two simultaneous holders break. For more than two holders of permits see `exceedLimit`. */
function brokenBy(earlier: Holding, later: Holding): Rule | undefined {
  if (areReaders(earlier, later)) return earlier.token === later.token ? undefined : 'two tokens among readers';
  return earlier.hold?.mode === 'permits' && later.hold?.mode === 'permits' ? undefined : 'overlapping holders';
}

function areReaders(...holdings: readonly Holding[]): boolean {
  return holdings.every(({ hold }) => hold?.mode === 'shared');
}

function lacksToken({ hold, token }: Holding): boolean {
  return hold?.mode === 'shared' && token === undefined;
}

/** Whether they have more permits than the smallest limit that one of them names. */
function exceedLimit(holdings: readonly Holding[]): boolean {
  const counts = countsOf(holdings);
  const held = counts.reduce((sum, { permits }) => sum + permits, 0);
  return held > Math.min(...counts.map(({ limit }) => limit));
}

function countsOf(holdings: readonly Holding[]) {
  return holdings.flatMap(({ turn, hold }) => (hold?.mode === 'permits' ? [{ turn, ...hold }] : []));
}

function permitsText(holdings: readonly Holding[]): string {
  const { key, from } = holdings.at(-1)!;
  const held = countsOf(holdings).map(({ turn, permits, limit }) => `${permits} of ${limit} by ${turn}`);
  return `${key}: ${held.join(', ')}, from ${from.toFixed(1)} on`;
}

/**
 * A fault excuses two holders if it happened between the begin of the lease that it cost and the second grant, and only
 * until that lease must have expired: a holder that extends after the loss learns of it. The second holder may have
 * lost its lease instead, if that began first.
 */
function excuses({ at, until, key }: Loss, earlier: Holding, later: Holding): boolean {
  if (key !== undefined && key !== later.key) return false;
  const lost = later.leaseFrom < earlier.leaseFrom ? [earlier, later] : [earlier];
  const overlapEnd = Math.min(earlier.to, later.to);
  const runsOut = lost.some(({ leaseFrom, ttlMs }) => until >= leaseFrom && overlapEnd <= until + ttlMs);
  return at <= later.from && runsOut;
}

function overlapText(earlier: Holding, later: Holding): string {
  const ms = (Math.min(earlier.to, later.to) - later.from).toFixed(1);
  return `${later.key}: ${earlier.turn} and ${later.turn} for ${ms} ms, from ${later.from.toFixed(1)} on`;
}

/**
 * A process does not pass on a lock that it has lost: from the moment it knows, if it took the lock away itself;
 * otherwise only as long as it may take to notice. If the lock was lost before, it may have taken it from the next
 * holder, and then does not know yet.
 */
function passedOn(
  holdings: readonly Holding[],
  lossy: readonly EntryOf<'fault'>[],
  forced: readonly EntryOf<'forced'>[],
  slackMs: number,
): Violation[] {
  const firstFrom = new Map<string, number>();
  for (const { owner, from } of holdings) {
    if (owner !== undefined) firstFrom.set(owner, Math.min(from, firstFrom.get(owner) ?? Infinity));
  }
  const isLate = (holding: Holding) => {
    const { turn, key, owner = '', from, leaseFrom } = holding;
    const since = firstFrom.get(owner) ?? Infinity;
    const ofKey = forced.filter((loss) => loss.key === key);
    const [own, byOthers] = [true, false].map((isOwn) =>
      ofKey.filter(({ process }) => (process === processOf(turn)) === isOwn),
    );
    const before: Loss[] = [...lossy, ...byOthers!.map((loss) => ({ ...loss, until: loss.answered ?? loss.until }))];
    const wasLostBefore = (time: number) =>
      before.some((loss) => loss.at < time && leaseFrom <= loss.until && from <= noticedBy(loss, holding, slackMs));
    const knows = own!.some(({ at, answered = Infinity }) => since < at && from > answered && !wasLostBefore(answered));
    const mustHaveAsked = (loss: EntryOf<'fault'>) =>
      loss.forgets === true && since < loss.at && from > noticedBy(loss, holding, slackMs);
    return knows || lossy.some(mustHaveAsked);
  };
  return holdings.filter(isLate).map(({ turn, key }) => violation('passed on after a loss', `${key}: to turn ${turn}`));
}

/** By turns whose `maxHoldMs` had passed. */
function heldTooLong(holdings: readonly Holding[], slackMs: number): Violation[] {
  return holdings.flatMap(({ turn, key, from, to, maxHoldMs = Infinity }) => {
    const heldMs = to - from;
    if (heldMs <= maxHoldMs * DRIFT + slackMs) return [];
    return [violation('held for too long', `${key}: by turn ${turn} for ${heldMs.toFixed(0)} ms of ${maxHoldMs}`)];
  });
}

/** An acquire that was neither granted nor refused, or not in time, by a process that was not killed. */
function endless(history: readonly Entry[], { answerMs, livenessMs }: Terms): Violation[] {
  const answers = new Map<string, number>();
  for (const entry of history) {
    if (entry.type === 'granted' || entry.type === 'refused') answers.set(entry.turn, entry.at);
  }
  const faults = of(history, 'fault');
  const hung = of(history, 'hung').map(({ worker }) =>
    violation('operation without an end', `worker ${worker} did not end when requested`),
  );
  const limited = of(history, 'asked').filter(({ endlessly }) => !endlessly);
  const late = limited.flatMap(({ at, turn, worker, key, calmly }) => {
    const answeredAt = answers.get(turn);
    const hits = faults.filter((fault) => fault.worker === worker);
    if (answeredAt === undefined) {
      // It may ask a moment after the nemesis has noted the kill.
      const wasKilled = hits.some((fault) => fault.kind === 'kill-worker' && fault.until >= at);
      return wasKilled ? [] : [violation('operation without an end', `${key}: turn ${turn} has no answer`)];
    }
    const stopped = hits.filter(({ kind }) => kind === 'stop-worker').map((stop) => shared(stop, at, answeredAt));
    const tookMs = answeredAt - at - stopped.reduce((total, part) => total + part, 0);
    if (tookMs <= (calmly ? livenessMs : answerMs)) return [];
    return [violation('operation without an end', `${key}: turn ${turn} was answered after ${tookMs.toFixed(0)} ms`)];
  });
  return [...hung, ...late];
}

function shared(fault: { at: number; until: number }, from: number, to: number): number {
  return Math.max(0, Math.min(fault.until, to) - Math.max(fault.at, from));
}

function lifeless(history: readonly Entry[], livenessMs: number): Violation[] {
  const asked = new Map(of(history, 'asked').map((entry) => [entry.turn, entry]));
  return of(history, 'healed').flatMap(({ at, workers }) => {
    const turns = of(history, 'granted').flatMap(({ turn, hold, at: grantedAt }) => {
      const { worker, key, at: askedAt } = asked.get(turn)!;
      return key === CALM_KEY && !hold && grantedAt <= at + livenessMs ? [{ worker, askedAt, grantedAt }] : [];
    });
    return shutOut(workers, turns).map((worker) =>
      violation('no lock after the nemesis', `worker ${worker} waited for a lock without success for ${livenessMs} ms`),
    );
  });
}

/** The duration does not depend on how many places came back with the old data. */
function notRegained(
  history: readonly Entry[],
  holdings: readonly Holding[],
  losses: readonly EntryOf<'fault'>[],
  regainMs: number | undefined,
): Violation[] {
  if (regainMs === undefined) return [];
  const answers = new Map<string, number>();
  for (const entry of history) {
    if (entry.type === 'granted' || entry.type === 'refused') answers.set(entry.turn, entry.at);
  }
  return losses.filter(goesBack).flatMap(({ until }) => {
    const [amid, end] = [until + regainMs / 2, until + regainMs];
    const waits = ({ at, turn }: EntryOf<'asked'>) => at <= amid && (answers.get(turn) ?? Infinity) >= amid;
    const wanted = new Set(of(history, 'asked').flatMap((asked) => (waits(asked) ? [asked.key] : [])));
    const isHeld = (key: string) => holdings.some((each) => each.key === key && each.from <= end && each.to >= until);
    return [...wanted]
      .filter((key) => !isHeld(key))
      .map((key) =>
        violation('nobody inside after a server went back', `${key}: for ${regainMs} ms, from ${until.toFixed(1)} on`),
      );
  });
}

function goesBack({ kind }: Pick<Loss, 'kind'>): boolean {
  return kind === 'restart-old' || kind === 'swap-primary';
}

function standstills(history: readonly Entry[], beatMs: number): Violation[] {
  const stops = of(history, 'fault').filter(({ kind }) => kind === 'stop-worker');
  const last = new Map<string, number>();
  return history.flatMap((entry) => {
    if (entry.type !== 'beat' && entry.type !== 'exited') return [];
    const { process, worker, at } = entry;
    const from = last.get(process) ?? at;
    last.set(process, at);
    const own = stops.filter((stop) => stop.worker === worker);
    const ms = at - from - own.reduce((total, stop) => total + shared(stop, from, at), 0);
    if (ms <= beatMs) return [];
    return [
      violation('event loop stood still', `process ${process} for ${ms.toFixed(0)} ms, from ${from.toFixed(1)} on`),
    ];
  });
}

function accessesOf(history: readonly Entry[]): EntryOf<'read' | 'write'>[] {
  return history.filter((entry): entry is EntryOf<'read' | 'write'> => entry.type === 'read' || entry.type === 'write');
}

function byKey(holdings: readonly Holding[]): Holding[][] {
  const groups = new Map<string, Holding[]>();
  for (const holding of holdings) {
    const group = groups.get(holding.key);
    if (group) group.push(holding);
    else groups.set(holding.key, [holding]);
  }
  return [...groups.values()];
}

function violation(rule: Rule, text: string): Violation {
  return { rule, text };
}
