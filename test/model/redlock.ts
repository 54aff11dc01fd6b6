import type { Fault, NodeExtension, Vote } from '../../lib/stores/redis/node/node-answers.js';
import type * as Decisions from '../../lib/stores/redis/redlock/decisions.js';
import { NodeError } from '../../lib/api/errors.js';
import type { Model } from './explorer.js';
import { codeOf, keyOf } from './key.js';
import type { KeyOnNode, Raise, Scripts } from './node.js';
import type { Answer, Attempt, Message, Node, State } from './state.js';

const NODES = 3;
/** What the clock of a node gains in a unit of time. Far more than the grants of a run. */
export const UNIT = 100;
/** For how many units a node that lost its data does not vote: as long as the longest lease takes. */
export const LONGEST_LEASE = 2;

export interface Setting {
  /** Attempts to hold the lock, one after the other or at the same time, each as good as a client of its own. */
  attempts: number;
  /** How many of them may be under way at a time; commands of one that is over may still be on their way. All by default. */
  atOnce?: number;
  /** Counters of the three nodes at the start, each a run of its own. */
  fences: (number | undefined)[][];
  /** Locks may end on a node at any moment, as after a jump of its clock; else not before the lease of the holder. */
  jumps?: boolean;
  /** How many holders, the first to begin, extend their lease once. */
  extensions?: number;
  /** How many times a node may lose its data. */
  wipes?: number;
  /** Whether it comes back with what it knew at some earlier moment, instead of nothing. */
  snapshots?: boolean;
  /** How much the clock of each node is ahead. */
  ahead?: number[];
  /** How many times a client may send an acquire again whose answer got lost. */
  resends?: number;
  /** Whether no command of an attempt that is over runs any more. */
  tidy?: boolean;
  /** Whether a node that lost its data votes at once. */
  unguarded?: boolean;
  /** Whether a lock is given to the caller whose lease has ended before all answers came. */
  unchecked?: boolean;
  scripts: Scripts;
  decisions: Pick<typeof Decisions, 'quorumOf' | 'tallyVotes' | 'acknowledged' | 'tallyWriteBack' | 'tallyExtension'>;
}

const FAULT: Fault = { status: 'fault', error: new NodeError('node', 'late'), mayHaveRun: true, disconnected: false };
const ALL = [0, 1, 2];
const IDLE: Attempt = { phase: 'idle', floor: 0, token: 0, begun: 0, has: 0, ended: 0 };

/**
 * Attempts to hold one lock on three nodes, with the decisions of lib/stores/redis/redlock/decisions.ts. What can be seen by
 * nobody is no step of its own: an attempt begins when the first node runs its command, a lock ends when a node is asked
 * next, an answer is read when the client decides.
 */
export function redlock(setting: Setting): Model<State> {
  const { scripts, decisions, atOnce = setting.attempts, jumps = false, extensions = 0 } = setting;
  const quorum = decisions.quorumOf(NODES);

  const initial = setting.fences.map((fences): State => ({
    time: 1,
    nodes: fences.map((fence, at) => ({
      key: { fence },
      lease: 0,
      votesFrom: 0,
      mail: [],
      ahead: setting.ahead?.[at] ?? 0,
      text: {},
    })),
    attempts: Array.from({ length: setting.attempts }, () => IDLE),
    issued: [],
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

  /** A client goes on: it reads no more answers to what it asked before, and sends a command to some nodes. */
  const goOn = (before: State, who: number, patch: Partial<Attempt>, kind?: Message['kind'], to = ALL): State => {
    const state = withAttempt(before, who, { token: 0, ...patch });
    const message = kind && { kind, from: who, token: patch.token ?? 0 };
    const nodes = state.nodes.map((node, at) => {
      const keeps = ({ from, answer, kind: asked }: Message) =>
        from !== who ||
        (answer === undefined && !(setting.tidy && patch.phase === 'over')) ||
        (kind === 'raise' && asked === 'vote' && to.includes(at));
      const mail = node.mail.filter(keeps);
      if (message && to.includes(at)) mail.push(message);
      else if (mail.length === node.mail.length) return node;
      return { ...node, mail, text: {} };
    });
    return { ...state, nodes };
  };
  const begin = (state: State, who: number): State => {
    const floor = jumps ? Math.max(0, ...state.issued) : 0;
    return goOn(state, who, { phase: 'vote', floor, begun: 1 }, 'vote');
  };
  const end = (state: State, who: number): State => goOn(state, who, { phase: 'over', floor: 0, has: 0 });

  const issue = (state: State, who: number, token: number): State => {
    const { floor, ended } = state.attempts[who]!;
    if (ended > 0 && !setting.unchecked) return end(state, who);
    const last = Math.max(0, ...state.issued);
    let problem: string | undefined;
    if (state.issued.includes(token)) problem = `token ${token} is issued twice`;
    else if (token < floor) problem = `token ${token} is issued to an attempt that began after ${floor} was issued`;
    else if (!jumps && token < last) problem = `token ${token} is issued after ${last}`;
    else if (!jumps && state.attempts.some(({ has }) => has > 0)) problem = 'two believe that they hold the lock';
    // Where locks end at any moment it does not matter who believes to hold one, unless it extends.
    const isOfUse = !jumps || who < extensions;
    const next = goOn(state, who, { phase: isOfUse ? 'held' : 'over', floor: 0, has: isOfUse ? 1 : 0 });
    return { ...next, issued: [...state.issued, token].sort((a, b) => a - b), problem };
  };

  /** The nodes that this client has asked, with the answers that are there. */
  const asked = (state: State, who: number) => {
    const { phase, token } = state.attempts[who]!;
    return ALL.flatMap((at) => {
      const { mail } = state.nodes[at]!;
      const message = mail.find(({ from, kind }) => from === who && kind === phase);
      if (!message || phase !== 'raise') return message ? [{ at, answer: message.answer }] : [];
      const vote = mail.find(({ from, kind }) => from === who && kind === 'vote')?.answer as Vote | undefined;
      const raise = message.answer as Raise | undefined;
      return [{ at, answer: raise && vote && decisions.acknowledged(raise, vote, token) }];
    });
  };

  type Outcome = ReturnType<typeof tallied>;
  const tallied = ({ phase, token }: Attempt, answers: (Answer | undefined)[]) => {
    const open = answers.filter((answer) => answer === undefined).length;
    if (phase === 'vote') return decisions.tallyVotes(answers as Vote[], open, quorum, false);
    if (phase === 'raise') return decisions.tallyWriteBack(answers as Raise[], open, quorum, token);
    return decisions.tallyExtension(answers as NodeExtension[], open, quorum);
  };

  const act = (state: State, who: number, outcome: NonNullable<Outcome>): State => {
    switch (outcome.status) {
      case 'issued':
        return issue(state, who, outcome.fencingToken);
      case 'write-back': {
        const { fencingToken: token, to } = outcome;
        return goOn(state, who, { phase: 'raise', token }, 'raise', to);
      }
      case 'extended': {
        const missing = asked(state, who).filter(({ answer }) => answer?.status === 'absent');
        const to = missing.map(({ at }) => at);
        return goOn(state, who, { phase: 'held', has: 2 }, 'restore', to);
      }
      case 'unavailable':
        if (state.attempts[who]!.phase === 'extend') return goOn(state, who, { phase: 'held' });
    }
    return end(state, who);
  };

  const known = new Map<string, { some: number; outcome: NonNullable<Outcome> }[]>();
  /** Which of the answers may be read until they allow a decision, and which one. */
  const readings = (attempt: Attempt, answers: (Answer | undefined)[]) => {
    const key = String.fromCharCode(attempt.phase.charCodeAt(0), attempt.token, ...answers.map(codeOf));
    const before = known.get(key);
    if (before) return before;
    const without = (some: number, index: number) => some & ~(1 << index);
    const outcomeOf = (some: number) =>
      tallied(
        attempt,
        answers.map((answer, index) => (some === without(some, index) ? undefined : answer)),
      );
    const found: { some: number; outcome: NonNullable<Outcome> }[] = [];
    for (let some = 1; some < 1 << answers.length; some++) {
      const read = [...answers.keys()].filter((index) => some !== without(some, index));
      const outcome = outcomeOf(some);
      const isLast = read.some((index) => outcomeOf(without(some, index)) === undefined);
      if (outcome && isLast && read.every((index) => answers[index])) found.push({ some, outcome });
    }
    const late = tallied(
      attempt,
      answers.map(() => FAULT),
    );
    if (late) found.push({ some: 0, outcome: late });
    known.set(key, found);
    return found;
  };

  /** The client has read some of the answers that are there, the last of which lets it decide; or it waits no longer. */
  function* decide(state: State, who: number): Generator<readonly [string, State]> {
    const all = asked(state, who);
    const answers = all.map(({ answer }) => answer);
    for (const { some, outcome } of readings(state.attempts[who]!, answers)) {
      const names = all
        .filter((_, index) => some & (1 << index))
        .map(({ at, answer }) => `${said(answer)} by ${at + 1}`);
      yield [`${who + 1} reads: ${names.join(', ') || 'no more'}; ${outcome.status}`, act(state, who, outcome)];
    }
  }

  const votes = ({ lost }: Node, { time, attempts }: State): boolean =>
    lost === undefined ||
    setting.unguarded === true ||
    (time >= lost.at + LONGEST_LEASE &&
      (jumps || attempts.every(({ phase, ended }, who) => phase === 'over' || ended >= lost.leases[who]!)));

  /** A command runs on a node, which knows `known` by then. */
  const run = (state: State, at: number, message: Message, known: KeyOnNode): State => {
    const node = state.nodes[at]!;
    const { kind, from, token } = message;
    const { phase, begun, has } = state.attempts[from]!;
    const owner = String(from);
    let [key, answer]: readonly [KeyOnNode, Answer] = [known, FAULT];
    let { lost } = node;
    if (kind === 'vote' && votes(node, state)) {
      [key, answer] = scripts.vote(known, owner, state.time * UNIT + node.ahead, node.votesFrom);
      lost = undefined;
    }
    if (kind === 'raise') [key, answer] = scripts.raise(known, owner, token);
    if (kind === 'extend') [key, answer] = scripts.extend(known, owner, 'keep');
    if (kind === 'restore') [key, answer] = scripts.extend(known, owner, 'restore');
    const prolonged = answer.status === 'extended' || answer.status === 'restored' ? begun : 1;
    const lease = key.owner === known.owner ? Math.max(node.lease, prolonged) : prolonged;
    const mail = node.mail.filter((other) => other !== message);
    // A node that says late that it has lost the lock is mended, too.
    if (kind === 'extend' && answer.status === 'absent' && phase === 'held' && has === 2) {
      mail.push({ kind: 'restore', from, token: 0 });
    } else if (kind === phase || (kind === 'vote' && phase === 'raise')) mail.push({ ...message, answer });
    return withNode(state, at, { key, lost, mail, lease: key.owner === undefined || jumps ? 0 : lease });
  };

  /** What a node may know of the key by the time that it is asked: its lock may have ended, or been given back. */
  function* meanwhile({ key, lease }: Node, { attempts }: State): Generator<readonly [string, KeyOnNode]> {
    yield ['', key];
    if (key.owner === undefined) return;
    const owner = Number(key.owner);
    if (jumps || attempts[owner]!.ended >= lease)
      yield [`after the lock of ${owner + 1} has ended, `, { fence: key.fence }];
    for (const [who, { phase }] of attempts.entries()) {
      const [released] = scripts.release(key, String(who));
      if (!jumps && phase === 'over' && released !== key) yield [`after the release by ${who + 1}, `, released];
    }
  }

  function* next(state: State): Generator<readonly [string, State]> {
    const { attempts, nodes, time, wipes, resends } = state;
    // Attempts are numbered by when they begin.
    const inFlight = attempts.filter(({ phase }) => phase !== 'idle' && phase !== 'over').length;
    const idle = inFlight < atOnce ? attempts.findIndex(({ phase }) => phase === 'idle') : -1;
    for (const from of idle < 0 ? [state] : [state, begin(state, idle)]) {
      for (const [at, node] of from.nodes.entries()) {
        for (const message of node.mail) {
          const { kind, from: sender, token, answer } = message;
          if (answer || (from !== state && sender !== idle)) continue;
          for (const [since, known] of meanwhile(node, from)) {
            const after = run(from, at, message, known);
            const command = `${kind}${token ? ` ${token}` : ''} of ${sender + 1}`;
            yield [`node ${at + 1}, ${since}runs ${command}: ${told(after.nodes[at]!.key)}`, after];
          }
        }
      }
    }
    for (const [at, { key, lease, snapshot, ahead, mail }] of nodes.entries()) {
      if (wipes > 0 && setting.snapshots && nodes.every((node) => !node.snapshot)) {
        yield [`node ${at + 1} writes a snapshot`, withNode(state, at, { snapshot: { key, lease } })];
      }
      if (
        wipes > 0 &&
        (setting.snapshots ? snapshot && snapshot.key !== key : (key.owner ?? key.fence) !== undefined)
      ) {
        const leases = jumps ? [] : attempts.map(({ begun }) => begun);
        const votesFrom = (time + LONGEST_LEASE) * UNIT + ahead;
        const known = snapshot ?? { key: {}, lease: 0 };
        const restarted = withNode(state, at, { ...known, lost: { at: time, leases }, votesFrom, snapshot: undefined });
        const what = snapshot ? 'restarts with its snapshot' : 'loses its data';
        yield [`node ${at + 1} ${what}`, { ...restarted, wipes: wipes - 1 }];
      }
      for (const message of resends > 0 ? mail : []) {
        if (!message.answer || message.kind !== 'vote') continue;
        const again = mail.map((other) => (other === message ? { ...message, answer: undefined } : other));
        yield [
          `the vote of node ${at + 1} is lost, and asked for again`,
          { ...withNode(state, at, { mail: again }), resends: resends - 1 },
        ];
      }
    }
    if (!setting.unguarded && nodes.some(({ lost }) => lost && time < lost.at + LONGEST_LEASE)) {
      yield ['time passes', { ...state, time: time + 1 }];
    }
    for (const [who, { phase, begun, has, ended }] of attempts.entries()) {
      if (phase === 'vote' || phase === 'raise' || phase === 'extend') yield* decide(state, who);
      if (phase === 'held') {
        yield [`${who + 1} gives the lock back`, end(state, who)];
        if (begun === 1 && who < extensions) {
          yield [`${who + 1} extends`, goOn(state, who, { phase: 'extend', begun: 2 }, 'extend')];
        }
      }
      if (!jumps && phase !== 'over' && ended < begun) {
        const later = withAttempt(state, who, { ended: ended + 1 });
        yield [`a lease of ${who + 1} ends`, has > 0 && has <= ended + 1 ? end(later, who) : later];
      }
    }
  }

  return { initial, next, problem: ({ problem }) => problem, key: keyOf };
}

function said(answer: Answer | undefined): string {
  return answer?.status === 'granted' ? `granted ${answer.fencingToken}` : String(answer?.status);
}

function told({ owner, fence }: KeyOnNode): string {
  return `${owner === undefined ? 'free' : `held by ${Number(owner) + 1}`}, counter ${fence ?? 'none'}`;
}
