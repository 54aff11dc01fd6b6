import type { Model } from './explorer.js';
import { Call, type Mint, type Server } from './server.js';

/** One run of the model: what is in it, and what of it is broken on purpose. */
export interface Setting {
  mint: Mint;
  /** Calls of scripts, at most. */
  calls: number;
  /** Locks in one call, at most. */
  together: number;
  /** How many tokens a waiter may ask for. */
  counts: number[];
  /** The clock of the server runs from 1 to this moment. */
  lastMoment: number;
  /** How many times the clock steps, back or forward, to any moment. */
  clockSteps?: number;
  /** How many times the counter is lost, as after FLUSHALL, or a replica takes over that has an older one. */
  losses?: number;
  /** Whether a server that goes on without the counter may have a clock that is behind tokens that were issued. */
  anyClock?: boolean;
  /** Whether the clock has moved on when a call is over: else many calls may see the same time. */
  callsTakeTime?: boolean;
}

/** Nothing here is ever changed. */
interface State {
  time: number;
  counter?: number;
  /** The counter that a replica has received. */
  replica?: number;
  /** The counter was lost, and nothing was minted since. */
  isLost: boolean;
  /** The last token of each key. */
  last: readonly number[];
  /** All tokens, in order. */
  issued: readonly number[];
  calls: number;
  clockSteps: number;
  losses: number;
  problem?: string;
}

interface Grant {
  key: number;
  count: number;
}

const KEYS = [0, 1];
/** Of a server that no process waits for. */
const NOBODY = { signs: {}, listening: [] };
/** Stands among the keys of a call for a lock that another holds. */
const TAKEN = -1;

/**
 * Grants of two locks by one server, whose counter they share. Locks may end at any moment, so each call finds them as it
 * needs them, and only clock, counter and tokens are kept from one call to the next.
 */
export function oneServer(setting: Setting): Model<State> {
  const { mint, counts, together, lastMoment, callsTakeTime = false, anyClock = false } = setting;
  const moments = Array.from({ length: lastMoment }, (_, index) => index + 1);

  const initial: State = {
    time: 1,
    isLost: false,
    last: KEYS.map(() => 0),
    issued: [],
    calls: setting.calls,
    clockSteps: setting.clockSteps ?? 0,
    losses: setting.losses ?? 0,
  };

  const grants = (key: number) => counts.map((count): Grant => ({ key, count }));
  const acquisitions = listsOf([...KEYS, TAKEN], together).filter(
    (keys) => keys.some((key) => key !== TAKEN) && KEYS.every((key) => keys.indexOf(key) === keys.lastIndexOf(key)),
  );
  const contentions = listsOf(KEYS.flatMap(grants), together);
  const releases = listsOf(KEYS, together);

  /** The tokens of a call are issued, in the order of its grants. */
  const issue = (state: State, server: Server, name: string, granted: (Grant & { token: number })[]) => {
    const last = [...state.last];
    const issued = [...state.issued];
    let problem: string | undefined;
    for (const { key, count, token } of granted) {
      const tokens = Array.from({ length: count }, (_, index) => token + index);
      const twice = tokens.find((one) => issued.includes(one));
      if (twice !== undefined) problem ??= `token ${twice} is issued twice`;
      if (token <= last[key]!) problem ??= `lock ${key + 1} gets token ${token} after ${last[key]}`;
      last[key] = token + count - 1;
      issued.push(...tokens);
    }
    issued.sort((a, b) => a - b);
    const time = state.time + (callsTakeTime ? 1 : 0);
    const said = granted.map(
      ({ key, count, token }) => `${key + 1} gets ${token}${count > 1 ? ` and ${count - 1} more` : ''}`,
    );
    const after = {
      ...state,
      time,
      last,
      issued,
      problem,
      counter: server.counter,
      isLost: false,
      calls: state.calls - 1,
    };
    return [`at ${state.time} ${name}: ${said.join(', ')}; counter ${server.counter ?? 'none'}`, after] as const;
  };

  const acquire = (state: State, keys: readonly number[]) => {
    const server: Server = {
      counter: state.counter,
      locks: { [TAKEN]: { owner: 'another', token: 0 } },
      queues: {},
      ...NOBODY,
    };
    const call = new Call(server, state.time, mint);
    const granted = keys.flatMap((key) => {
      const answer = call.acquire(String(key), 'owner', keys.length);
      return typeof answer === 'object' && 'granted' in answer ? [{ key, count: 1, token: answer.granted }] : [];
    });
    return issue(state, server, 'acquire', granted);
  };
  const contend = (state: State, asked: readonly Grant[]) => {
    const server: Server = { counter: state.counter, locks: {}, queues: {}, ...NOBODY };
    const call = new Call(server, state.time, mint);
    const granted = asked.flatMap(({ key, count }) => {
      const answer = call.turn(String(key), '', 'owner', count, undefined, 'h');
      if (typeof answer !== 'object' || !('granted' in answer)) return [];
      const { granted: token, last = token } = answer;
      return [{ key, count: last - token + 1, token }];
    });
    return issue(state, server, 'turn', granted);
  };
  /** A lock that is given back twice in a call goes to a waiter, and from that to the next. */
  const release = (state: State, keys: readonly number[]) => {
    const holder = { owner: '0', token: 0, mayHaveQueue: true };
    const turns = Math.max(...counts);
    const waiters = () => keys.map((_, index) => ({ ticket: String(index + 1), channel: 'inbox', turns }));
    const server: Server = {
      counter: state.counter,
      locks: Object.fromEntries(KEYS.map((key) => [key, holder])),
      queues: Object.fromEntries(KEYS.map((key) => [key, waiters()])),
      signs: {},
      listening: ['inbox'],
    };
    const call = new Call(server, state.time, mint);
    const granted = keys.map((key) => {
      call.release(String(key), server.locks[key]!.owner);
      const { first, token } = server.locks[key]!;
      return { key, count: token! - first! + 1, token: first! };
    });
    return issue(state, server, 'release', granted);
  };

  /** Detached locks are adopted, each by the first that asks. */
  const adopt = (state: State, keys: readonly number[]) => {
    const locks = Object.fromEntries(KEYS.map((key) => [key, { owner: 'parcel', token: state.last[key]! }]));
    const server: Server = { counter: state.counter, locks, queues: {}, ...NOBODY };
    const call = new Call(server, state.time, mint);
    const granted = keys.flatMap((key, index) => {
      const answer = call.transfer(String(key), 'parcel', `adopter ${index}`, true);
      return typeof answer === 'object' && 'granted' in answer ? [{ key, count: 1, token: answer.granted }] : [];
    });
    return issue(state, server, 'adopt', granted);
  };

  function* next(state: State): Generator<readonly [string, State]> {
    const { time, counter, replica, isLost, issued, calls, clockSteps, losses } = state;
    if (calls > 0 && (!isLost || anyClock || time > (issued.at(-1) ?? 0))) {
      for (const keys of acquisitions) yield acquire(state, keys);
      for (const asked of contentions) yield contend(state, asked);
      for (const keys of releases) yield release(state, keys);
      for (const keys of releases) yield adopt(state, keys);
    }
    if (time < lastMoment) yield ['time passes', { ...state, time: time + 1 }];
    for (const moment of clockSteps > 0 ? moments : []) {
      if (moment === time) continue;
      const step = `the clock steps ${moment < time ? 'back' : 'forward'} to ${moment}`;
      yield [step, { ...state, time: moment, clockSteps: clockSteps - 1 }];
    }
    if (losses === 0) return;
    const lost = { ...state, isLost: true, losses: losses - 1 };
    if (counter !== undefined) yield ['all data is deleted', { ...lost, counter: undefined }];
    if (counter === replica) return;
    yield ['the replica catches up', { ...state, replica: counter }];
    for (const moment of moments) {
      const step = `a replica takes over with counter ${replica ?? 'none'} at ${moment}`;
      yield [step, { ...lost, counter: replica, time: moment }];
    }
  }

  return { initial: [initial], next, problem: ({ problem }) => problem, key: keyOf };
}

/** A short text for a state. It does not matter which key is which. */
function keyOf({ time, counter, replica, isLost, last, issued, calls, clockSteps, losses, problem }: State): string {
  const flags = (isLost ? 1 : 0) + (problem ? 2 : 0);
  const lasts = [...last].sort((a, b) => a - b);
  return String.fromCharCode(time, counter ?? 0, replica ?? 0, flags, calls, clockSteps, losses, ...lasts, ...issued);
}

/** All lists of one to `length` of these, in any order, with repetitions. */
function listsOf<Item>(items: readonly Item[], length: number): Item[][] {
  const lists: Item[][][] = [[[]]];
  for (let at = 0; at < length; at++) lists.push(lists[at]!.flatMap((list) => items.map((item) => [...list, item])));
  return lists.slice(1).flat();
}
