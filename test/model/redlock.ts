import { NodeError } from '../../lib/index.js';
import type { ExtendOutcome } from '../../lib/core/backend/lock-backend.js';
import type { Answer as NodeAnswer, Failed } from '../../lib/stores/node/server.backend.js';
import type { Vote } from '../../lib/stores/redis/node/lock-scripts.js';
import type * as Decisions from '../../lib/stores/redis/redlock/decisions.js';
import type { Model } from './explorer.js';
import { codeOf, keyOf } from './key.js';
import type { Extension, KeyOnNode, Raise, Scripts } from './node.js';
import type { Answer, Attempt, Memory, Message, Node, State } from './state.js';

const NODES = 3;
/** The clocks of the nodes, if they matter. All numbers are in the unit of tokens. */
export interface Clocks {
  /** How far the clock of each node is ahead. */
  ahead: number[];
  /** How far a proposal may differ from the clock of a node that votes for it. */
  limit: number;
  /** How long a node that lost its data does not vote: the unit in which time passes. */
  waits: number;
}

export interface Setting {
  /** The key of each attempt to hold a lock. Keys share the counter of each node. */
  attempts: number[];
  /**
   * How many of them may be in flight at a time; commands of finished attempts may still be on their way. All by
   * default.
   */
  atOnce?: number;
  /** The possible proposals of each attempt; with clocks, how far the proposing clock is ahead. */
  proposals: number[][];
  /** Counters of the three nodes at the start, each a run of its own. */
  fences: (number | undefined)[][];
  clocks?: Clocks;
  /**
   * Locks may end on a node at any moment, as after a jump of its clock; otherwise not before the lease of the holder.
   */
  jumps?: boolean;
  /** How many holders, the first in the list, extend their lease once. */
  extensions?: number;
  /** How many times a node may lose its data. Needs clocks. */
  wipes?: number;
  /** Whether it may also come back with its state of some earlier moment, instead of nothing. */
  snapshots?: boolean;
  /** How many times a client may repeat an acquire whose answer was lost. */
  resends?: number;
  /** Whether no command of a finished attempt runs any more. */
  tidy?: boolean;
  /** Whether a node that lost its data votes at once. */
  unguarded?: boolean;
  /** Whether a write-back counts on a node that has restarted since its vote. */
  forgetsConnections?: boolean;
  /** Whether a caller gets a lock whose lease has ended before all answers came. */
  unchecked?: boolean;
  scripts: Scripts;
  decisions: Pick<typeof Decisions, 'quorumOf' | 'tallyAttempt' | 'validatedRaise' | 'tallyExtension'>;
}

type Step = readonly [name: () => string, state: State];

const FAULT: Failed = {
  status: 'unavailable',
  causes: [new NodeError('node', 'late')],
  mayHaveRun: true,
  disconnected: false,
};
const GONE: Raise = { status: 'gone' };
const ALL = [0, 1, 2];
const IDLE: Attempt = { phase: 'idle', floor: 0, token: 0, begun: 0, has: 0, ended: 0 };

/**
 * Attempts to hold locks on three nodes, with the decisions of lib/stores/redis/redlock/decisions.ts. What nobody can
 * see is not a separate step: an attempt begins when the first node runs its command, a lock ends when a node is next
 * asked, an answer is read when the client decides, a node writes to disk what it has just changed.
 */
export function redlock(setting: Setting): Model<State> {
  const { scripts, decisions, clocks, jumps = false, extensions = 0 } = setting;
  const keyOfAttempt = setting.attempts;
  const atOnce = setting.atOnce ?? keyOfAttempt.length;
  const keys = [...new Set(keyOfAttempt)];
  const quorum = decisions.quorumOf(NODES);
  const unit = clocks?.waits ?? 0;

  const memoryWith = (fence?: number): Memory => ({
    fence,
    locks: keys.map(() => undefined),
    leases: keys.map(() => 0),
  });
  const empty = setting.fences.map((fences): State => ({
    time: 1,
    nodes: fences.map((fence, at) => ({
      memory: memoryWith(fence),
      mail: [],
      ahead: clocks?.ahead[at] ?? 0,
      text: {},
    })),
    attempts: keyOfAttempt.map(() => IDLE),
    issued: keys.map(() => []),
    wipes: setting.wipes ?? 0,
    resends: setting.resends ?? 0,
  }));

  const withNode = (state: State, at: number, patch: Partial<Node>): State => ({
    ...state,
    nodes: state.nodes.map((node, index) => (index === at ? { ...node, ...patch, text: {} } : node)),
  });
  const withAttempt = (state: State, who: number, patch: Partial<Attempt>): State => ({
    ...state,
    attempts: state.attempts.map((attempt, index) => (index === who ? { ...attempt, ...patch } : attempt)),
  });

  /** The states in which this node has written its knowledge to disk, if it may do that now. */
  function* writes(state: State, at: number): Generator<State> {
    if (!setting.snapshots || state.wipes === 0 || state.nodes.some(({ snapshot }) => snapshot)) return;
    yield withNode(state, at, { snapshot: state.nodes[at]!.memory });
  }

  /** A client continues: it reads no more answers to its earlier requests, and sends a command to some nodes. */
  const goOn = (
    before: State,
    who: number,
    patch: Partial<Attempt>,
    command?: Pick<Message, 'kind' | 'token'>,
    to = ALL,
  ): State => {
    const state = withAttempt(before, who, patch);
    const kind = command?.kind;
    const nodes = state.nodes.map((node, at) => {
      const keeps = ({ from, answer, kind: asked }: Message) =>
        from !== who ||
        (answer === undefined && !(setting.tidy && patch.phase === 'over')) ||
        (kind === 'raise' && asked === 'vote' && to.includes(at));
      const mail = node.mail.filter(keeps);
      if (command && to.includes(at)) mail.push({ ...command, from: who });
      else if (mail.length === node.mail.length) return node;
      return { ...node, mail, text: {} };
    });
    return { ...state, nodes };
  };
  const begin = (state: State, who: number, proposal: number): State => {
    const floor = jumps ? Math.max(0, ...state.issued[keyOfAttempt[who]!]!) : 0;
    const token = proposal + state.time * unit;
    return goOn(state, who, { phase: 'vote', floor, begun: 1 }, { kind: 'vote', token });
  };
  const end = (state: State, who: number): State => goOn(state, who, { phase: 'over', floor: 0, token: 0, has: 0 });

  const issue = (state: State, who: number, token: number): State => {
    const { floor, ended } = state.attempts[who]!;
    if (ended > 0 && !setting.unchecked) return end(state, who);
    const key = keyOfAttempt[who]!;
    const before = state.issued[key]!;
    const last = Math.max(0, ...before);
    let problem: string | undefined;
    if (before.includes(token)) problem = `token ${token} is issued twice`;
    else if (token < floor) problem = `token ${token} is issued to an attempt that began after ${floor} was issued`;
    else if (!jumps && token < last) problem = `token ${token} is issued after ${last}`;
    else if (!jumps && state.attempts.some(({ has }, other) => has > 0 && keyOfAttempt[other] === key)) {
      problem = 'two believe that they hold the lock';
    }
    // If locks end at any moment, it does not matter who believes to hold one, unless it extends.
    const isOfUse = !jumps || who < extensions;
    const held = { phase: 'held', floor: 0, token: who < extensions ? token : 0, has: 1 } as const;
    const next = isOfUse ? goOn(state, who, held) : end(state, who);
    const issued = state.issued.map((tokens, at) => (at === key ? [...tokens, token].sort((a, b) => a - b) : tokens));
    return { ...next, issued, problem };
  };

  /**
   * The requests of this client whose answers it still reads: in the phase of a write-back its votes first, then the
   * write-back.
   */
  const asked = (state: State, who: number) => {
    const { phase } = state.attempts[who]!;
    const kinds = phase === 'raise' ? ['vote', 'raise'] : [phase];
    return kinds.flatMap((kind) =>
      ALL.flatMap((at) => {
        const message = state.nodes[at]!.mail.find((other) => other.from === who && other.kind === kind);
        return message ? [{ at, message }] : [];
      }),
    );
  };

  type Outcome = ReturnType<typeof tallied>;
  /** @param areOld which of the answers come from before a restart of their node */
  const tallied = ({ phase, token }: Attempt, answers: (Answer | undefined)[], areOld: boolean[]) => {
    const asking = <A>(some: (A | undefined)[]) => ({
      answers: some,
      open: some.filter((a) => a === undefined).length,
    });
    if (phase === 'vote') return decisions.tallyAttempt(asking(answers as Vote[]), quorum, false);
    if (phase === 'extend') {
      const extensionsOfNodes = asking((answers as (Extension | Failed | undefined)[]).map(outcomeOf));
      return decisions.tallyExtension(extensionsOfNodes.answers, extensionsOfNodes.open, quorum);
    }
    const votes = answers.slice(0, answers.length / 2) as (Vote | undefined)[];
    const raises = votes.map((vote, at) => {
      const raise = answers[votes.length + at] as Raise | undefined;
      if (!raise || !vote) return undefined;
      const isAfterRestart = areOld[at] && !areOld[votes.length + at];
      return isAfterRestart && !setting.forgetsConnections ? GONE : decisions.validatedRaise(raise, vote, token);
    });
    return decisions.tallyAttempt(asking(votes), quorum, false, { fencingToken: token, raises: asking(raises) });
  };

  const act = (state: State, who: number, outcome: NonNullable<Outcome>): State => {
    switch (outcome.status) {
      case 'issued':
        return issue(state, who, outcome.fencingToken);
      case 'write-back': {
        const { fencingToken: token, to } = outcome;
        return goOn(state, who, { phase: 'raise', token }, { kind: 'raise', token }, to);
      }
      case 'extended': {
        const missing = asked(state, who).filter(({ message }) => message.answer?.status === 'absent');
        const to = missing.map(({ at }) => at);
        return goOn(state, who, { phase: 'held', has: 2 }, { kind: 'restore', token: state.attempts[who]!.token }, to);
      }
      case 'unavailable':
        if (state.attempts[who]!.phase === 'extend') return goOn(state, who, { phase: 'held' });
    }
    return end(state, who);
  };

  const known = new Map<string, { some: number; outcome: NonNullable<Outcome> }[]>();
  /** The sets of answers that may be read until they allow a decision, and that decision. */
  const readings = (attempt: Attempt, messages: Message[]) => {
    const codes = messages.map(({ answer, isOld }) => codeOf(answer) * 2 + (isOld ? 1 : 0));
    const key = String.fromCharCode(attempt.phase.charCodeAt(0), attempt.token, ...codes);
    const before = known.get(key);
    if (before) return before;
    const answers = messages.map(({ answer }) => answer);
    const areOld = messages.map(({ isOld = false }) => isOld);
    const without = (some: number, index: number) => some & ~(1 << index);
    const outcomeOf = (some: number) =>
      tallied(
        attempt,
        answers.map((answer, index) => (some === without(some, index) ? undefined : answer)),
        areOld,
      );
    const found: { some: number; outcome: NonNullable<Outcome> }[] = [];
    for (let some = 1; some < 1 << answers.length; some++) {
      const read = [...answers.keys()].filter((index) => some !== without(some, index));
      if (!read.every((index) => answers[index])) continue;
      const outcome = outcomeOf(some);
      const isLast = outcome && read.some((index) => outcomeOf(without(some, index)) === undefined);
      if (isLast) found.push({ some, outcome });
    }
    const late = tallied(
      attempt,
      answers.map(() => FAULT),
      areOld,
    );
    if (late) found.push({ some: 0, outcome: late });
    known.set(key, found);
    return found;
  };

  /** The client has read some of the available answers, the last of which lets it decide; or it stops waiting. */
  function* decide(state: State, who: number): Generator<Step> {
    const all = asked(state, who);
    const messages = all.map(({ message }) => message);
    for (const { some, outcome } of readings(state.attempts[who]!, messages)) {
      const named = () => {
        const names = all
          .filter((_, index) => some & (1 << index))
          .map(({ at, message }) => `${said(message.answer)} by ${at + 1}`);
        return `${who + 1} reads: ${names.join(', ') || 'no more'}; ${outcome.status}`;
      };
      yield [named, act(state, who, outcome)];
    }
  }

  const votes = ({ lost }: Node, { time, attempts }: State): boolean =>
    lost === undefined ||
    setting.unguarded === true ||
    (time > lost.at &&
      (jumps || attempts.every(({ phase, ended }, who) => phase === 'over' || ended >= lost.leases[who]!)));

  /** A command runs on a node, which knows `known` about its key at that time. */
  const run = (state: State, at: number, message: Message, known: KeyOnNode): State => {
    const node = state.nodes[at]!;
    const { memory } = node;
    const { kind, from, token } = message;
    const { phase, begun, has } = state.attempts[from]!;
    const key = keyOfAttempt[from]!;
    const owner = String(from);
    let [after, answer]: readonly [KeyOnNode, Answer] = [known, FAULT];
    let { lost } = node;
    if (kind === 'vote' && votes(node, state)) {
      const clock = state.time * unit + node.ahead;
      [after, answer] = scripts.vote(known, owner, { proposal: token, clock, limit: clocks?.limit ?? Infinity });
      lost = undefined;
    }
    if (kind === 'raise') [after, answer] = scripts.raise(known, owner, token);
    if (kind === 'extend') [after, answer] = scripts.extend(known, owner);
    if (kind === 'restore') [after, answer] = scripts.restore(known, owner, token);
    const prolonged = answer.status === 'extended' || answer.status === 'restored' ? begun : 1;
    const lease = after.lock?.owner === known.lock?.owner ? Math.max(memory.leases[key]!, prolonged) : prolonged;
    const mail = node.mail.filter((other) => other !== message);
    // A node that reports late that it has lost the lock is repaired, too.
    if (kind === 'extend' && answer.status === 'absent' && phase === 'held' && has === 2) {
      mail.push({ kind: 'restore', from, token: state.attempts[from]!.token });
    } else if (kind === phase || (kind === 'vote' && phase === 'raise')) mail.push({ ...message, answer });
    const leases = memory.leases.map((before, of) => (of !== key ? before : after.lock && !jumps ? lease : 0));
    const isSame =
      after.lock === memory.locks[key] && after.fence === memory.fence && leases[key] === memory.leases[key];
    const locks = memory.locks.map((lock, of) => (of === key ? after.lock : lock));
    return withNode(state, at, { lost, mail, memory: isSame ? memory : { fence: after.fence, locks, leases } });
  };

  /** What a node may know about a key when it is asked: its lock may have ended, or been released. */
  function* meanwhile({ memory }: Node, { attempts }: State, of: number): Generator<readonly [string, KeyOnNode]> {
    const key = { lock: memory.locks[of], fence: memory.fence };
    yield ['', key];
    if (key.lock === undefined) return;
    const owner = Number(key.lock.owner);
    if (jumps || attempts[owner]!.ended >= memory.leases[of]!)
      yield [`after the lock of ${owner + 1} has ended, `, { fence: key.fence }];
    for (const [who, { phase }] of attempts.entries()) {
      if (keyOfAttempt[who] !== of) continue;
      const [released] = scripts.release(key, String(who));
      if (!jumps && phase === 'over' && released !== key) yield [`after the release by ${who + 1}, `, released];
    }
  }

  const likenesses = keyOfAttempt.map((key, who) => JSON.stringify([key, setting.proposals[who], who < extensions]));
  /** Attempts that may begin: the first of equal ones, and one without another proposal each. */
  function* beginnings(state: State): Generator<readonly [who: number, from: State]> {
    const inFlight = state.attempts.filter(({ phase }) => phase !== 'idle' && phase !== 'over').length;
    if (inFlight >= atOnce) return;
    const seen = new Set<string>();
    for (const [who, { phase }] of state.attempts.entries()) {
      const likeness = likenesses[who]!;
      if (phase !== 'idle' || seen.has(likeness)) continue;
      seen.add(likeness);
      for (const proposal of setting.proposals[who]!) yield [who, begin(state, who, proposal)];
    }
  }

  function* next(state: State): Generator<Step> {
    const { attempts, nodes, time, wipes, resends } = state;
    for (const [who, from] of [[undefined, state] as const, ...beginnings(state)]) {
      for (const [at, node] of from.nodes.entries()) {
        for (const message of node.mail) {
          const { kind, from: sender, token, answer } = message;
          if (answer || (who !== undefined && sender !== who)) continue;
          const key = keyOfAttempt[sender]!;
          for (const [since, known] of meanwhile(node, from, key)) {
            const after = run(from, at, message, known);
            const what = () =>
              `node ${at + 1}, ${since}runs ${kind} ${token} of ${sender + 1}: ${told(after.nodes[at]!, key)}`;
            yield [what, after];
            if (after.nodes[at]!.memory === node.memory) continue;
            for (const written of writes(after, at)) yield [() => `${what()}; and writes that to disk`, written];
          }
        }
      }
    }
    for (const [at, { memory, snapshot, mail }] of nodes.entries()) {
      const isOfInterest = memory.fence !== undefined || memory.locks.some(Boolean);
      const returns: (readonly [string, Memory])[] = [];
      if (isOfInterest && !snapshot) returns.push(['loses its data', memoryWith()]);
      if (snapshot && snapshot !== memory) returns.push(['restarts with its snapshot', snapshot]);
      for (const [what, kept] of wipes > 0 ? returns : []) {
        const lost = { at: time, leases: jumps ? [] : attempts.map(({ begun }) => begun) };
        const old = mail.map((message) => (message.answer ? { ...message, isOld: true } : message));
        const restarted = withNode(state, at, { memory: kept, lost, snapshot: undefined, mail: old });
        yield [() => `node ${at + 1} ${what}`, { ...restarted, wipes: wipes - 1 }];
      }
      for (const message of resends > 0 ? mail : []) {
        if (!message.answer || message.kind !== 'vote') continue;
        const again = mail.map((other) =>
          other === message ? { ...message, answer: undefined, isOld: false } : other,
        );
        yield [
          () => `the vote of node ${at + 1} is lost, and asked for again`,
          { ...withNode(state, at, { mail: again }), resends: resends - 1 },
        ];
      }
    }
    if (!setting.unguarded && nodes.some(({ lost }) => lost?.at === time)) {
      yield [() => 'time passes', { ...state, time: time + 1 }];
    }
    for (const [who, { phase, begun, has, ended, token }] of attempts.entries()) {
      if (phase === 'vote' || phase === 'raise' || phase === 'extend') yield* decide(state, who);
      if (phase === 'held') {
        yield [() => `${who + 1} gives the lock back`, end(state, who)];
        if (begun === 1 && who < extensions) {
          const extending = goOn(state, who, { phase: 'extend', begun: 2 }, { kind: 'extend', token });
          yield [() => `${who + 1} extends`, extending];
        }
      }
      if (!jumps && phase !== 'over' && ended < begun) {
        const later = withAttempt(state, who, { ended: ended + 1 });
        yield [() => `a lease of ${who + 1} ends`, has > 0 && has <= ended + 1 ? end(later, who) : later];
      }
    }
  }

  const initial = empty.flatMap((state) => [state, ...ALL.flatMap((at) => [...writes(state, at)])]);
  return { initial, next, problem: ({ problem }) => problem, key: keyOf };
}

function said(answer: Answer | undefined): string {
  return answer?.status === 'granted' ? `granted ${answer.fencingToken}` : String(answer?.status);
}

function told({ memory }: Node, key: number): string {
  const lock = memory.locks[key];
  return `${lock ? `held by ${Number(lock.owner) + 1} with ${lock.token}` : 'free'}, counter ${memory.fence ?? 'none'}`;
}

/** The decision of a node of a Redlock about the reply to an extension. */
function outcomeOf(answer: Extension | Failed | undefined): NodeAnswer<ExtendOutcome> | undefined {
  if (answer === undefined || answer.status === 'unavailable') return answer;
  if (answer.status === 'absent') return { status: 'lost', reason: 'expired' };
  if (answer.status === 'foreign') return { status: 'lost', reason: 'stolen' };
  return { status: 'extended', sentAt: 0 };
}
