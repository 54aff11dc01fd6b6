import type { Attempt, Memory, Message, Node, State } from './state.js';

const PHASES: Record<Attempt['phase'], number> = { idle: 0, vote: 1, raise: 2, held: 3, extend: 4, over: 5 };
const KINDS: Record<Message['kind'], number> = { vote: 0, raise: 1, extend: 2, restore: 3 };
const STATUSES: Record<string, number> = {
  unavailable: 1,
  raised: 2,
  gone: 3,
  extended: 4,
  restored: 5,
  absent: 6,
  foreign: 7,
};

/** A short text for a state. The order of the nodes does not matter. */
export function keyOf({ time, nodes, attempts, issued, wipes, resends, problem }: State): string {
  const all = [time, wipes, resends, problem ? 1 : 0];
  for (const tokens of issued) all.push(tokens.length, ...tokens);
  for (const { phase, floor, token, begun, has, ended } of attempts) {
    all.push(PHASES[phase], floor, token, begun * 9 + has * 3 + ended);
  }
  return String.fromCharCode(...all) + nodes.map(textOf).sort().join('\uffff');
}

/** Most nodes are unchanged from the state before, so their texts are kept. */
function textOf(node: Node): string {
  if (node.text.is !== undefined) return node.text.is;
  const { memory, lost, snapshot, mail, ahead } = node;
  const numbers = [ahead, ...numbersOf(memory)];
  numbers.push(...(lost ? [lost.at, ...lost.leases] : [0]));
  numbers.push(...(snapshot ? [1, ...numbersOf(snapshot)] : [0]));
  return (node.text.is = String.fromCharCode(...numbers) + mail.map(wordOf).sort().join(''));
}

/** Whether calls wait for a lock makes no difference to what follows. */
function numbersOf({ fence, locks, leases }: Memory): number[] {
  const ofLocks = locks.flatMap((lock, key) => (lock ? [Number(lock.owner) + 1, lock.token, leases[key]!] : [0]));
  return [(fence ?? -1) + 1, ...ofLocks];
}

function wordOf({ kind, from, token, answer, isOld }: Message): string {
  return String.fromCharCode(KINDS[kind] * 16 + from * 2 + (isOld ? 1 : 0), token, codeOf(answer));
}

/** A number for an answer. */
export function codeOf(answer: Message['answer']): number {
  if (answer === undefined) return 0;
  if (answer.status === 'granted') return 16 + answer.fencingToken;
  if (answer.status === 'refused') return 10 + Number(answer.owner);
  return STATUSES[answer.status]!;
}
