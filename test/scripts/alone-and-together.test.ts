import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  ACQUIRE,
  CROWD,
  DOWNGRADE,
  EXTEND,
  EXTEND_AND_TELL,
  EXTEND_CROWD,
  FORCE_RELEASE,
  INSPECT,
  KEEP,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
  TRANSFER,
  TURN,
  VOTE,
  VOTE_OR_QUEUE,
  WITHDRAW,
} from '../../lib/stores/redis/scripts/lua.js';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import { ownerPart, tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { GRANT_TTL_MS, readMessage } from '../../lib/stores/node/messages.js';
import { HEARD, queueEntry, UNHEARD } from '../../lib/stores/redis/scripts/hand-off.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const TTL_MS = 30_000;
const CHANNEL = 'inbox:alive';
/** Ahead of the clock of any server until the year 2223. */
const AHEAD = 8e15;
/** Of a grant in the past. */
const TOKEN = 17e14;
const GUARD = 'lock:admission';
const FENCE = 'lock:fence';

/** The keys of one lock. */
interface Keys {
  lock: string;
  /** The counter that it shares with all others. */
  fence: string;
  /** The counter of its shard, where it is voted for. */
  shard: string;
  queue: string;
  calls: string;
}
const keysOf = (name: string): Keys => ({
  lock: `lock:{${name}}`,
  fence: FENCE,
  shard: `${FENCE}:${name}`,
  queue: `lock:{${name}}:queue`,
  calls: `lock:{${name}}:calls`,
});

let server: RedisServer;
let client: Redis;
let listener: Redis;
let runner: ScriptRunner;
const heard: string[] = [];

beforeAll(async () => {
  server = await RedisServer.start();
  [client, listener] = [new Redis(server.url), new Redis(server.url)];
  await client.ping();
  runner = new ScriptRunner(portOf(client), 30_000);
  listener.on('message', (_channel, text) => void heard.push(text));
  await listener.subscribe(CHANNEL);
});
afterAll(async () => {
  client.disconnect();
  listener.disconnect();
  await server.stop();
});

const nowUs = () => Date.now() * 1_000;

// What a lock may be like before.
type Prepare = (keys: Keys) => Promise<unknown>;
const free: Prepare = () => Promise.resolve();
const heldAs =
  (value: string, ttlMs = TTL_MS): Prepare =>
  ({ lock }) =>
    client.set(lock, value, 'PX', ttlMs);
/** Nobody waits for it. */
const held = (owner: string, ttlMs = TTL_MS, token = TOKEN) => heldAs(ownerPart(owner) + tokenText(token), ttlMs);
/** Others may wait for it. */
const wanted = (owner: string, ttlMs = TTL_MS, token = TOKEN) =>
  heldAs(`${ownerPart(owner)}${tokenText(token)}+`, ttlMs);
/** Its work has ended. */
const kept = (owner: string, ttlMs = TTL_MS) => heldAs(`${ownerPart(owner)}${tokenText(TOKEN)}=`, ttlMs);
const waitedFor =
  (...entries: string[]): Prepare =>
  ({ queue }) =>
    client.zadd(queue, ...entries.flatMap((entry, index) => [index + 1, entry]));
const counter =
  (value: string | number): Prepare =>
  async ({ fence, shard }) => {
    await client.set(fence, value);
    await client.set(shard, value);
  };
const counterIsAList: Prepare = async ({ fence, shard }) => {
  await client.del(fence, shard);
  await client.rpush(fence, 'a', 'list');
  await client.rpush(shard, 'a', 'list');
};
const admitted =
  (epoch: string): Prepare =>
  () =>
    client.set(GUARD, `${epoch} 20 run`);
const toldBefore =
  (text: string): Prepare =>
  ({ calls }) =>
    client.set(calls, text, 'PX', TTL_MS);
const both =
  (...steps: Prepare[]): Prepare =>
  async (keys) => {
    for (const step of steps) await step(keys);
  };
const noString: Prepare = ({ lock }) => client.rpush(lock, 'a', 'list');

const entry = (ticket: string) => queueEntry('grant', CHANNEL, ticket, 1);
const nobody = queueEntry('grant', 'inbox:nobody', 'dead', 1);
const unheard = queueEntry('grant', 'inbox:elsewhere', 'unheard', 3);
/** The sign of its process. */
const isUnheard: Prepare = ({ queue }) => client.zadd(queue, -nowUs(), `${UNHEARD} inbox:elsewhere`);
/** Of the three processes, the second alone has given a sign lately. */
const oneIsSilent: Prepare = ({ queue }) => {
  const signs = [`${HEARD} inbox:nobody`, `${HEARD} ${CHANNEL}`, `${UNHEARD} inbox:elsewhere`];
  const now = nowUs(); // once: signs of the same moment have one order
  return client.zadd(queue, ...signs.flatMap((sign, index) => [(index === 1 ? 0 : 2_500_000) - now, sign]));
};
const wake = queueEntry('wake', CHANNEL, 'woken', 1);

interface Operation {
  script: Script;
  /** Of the lock's keys, those that the script takes. */
  of: (keys: Keys) => string[];
  /** @param nowUs the time */
  args: (nowUs: number) => (string | number)[];
}
const lockOnly = ({ lock }: Keys) => [lock];
const withFence = ({ lock, fence }: Keys) => [fence, lock];
const withQueue = ({ lock, fence, queue }: Keys) => [fence, lock, queue];
const acquire: Operation = { script: ACQUIRE, of: withFence, args: () => [TTL_MS, 'me@'] };
/** Proposes a token that is near the time of the node, unless there is another. */
const vote = (epoch = '', proposal?: number): Operation => ({
  script: VOTE,
  of: ({ lock, shard }) => [GUARD, lock, shard],
  args: (nowUs) => [epoch, TTL_MS, `me@${tokenText(proposal ?? nowUs)}`],
});
const contend = (
  ticket: string,
  { give = '', place = entry(ticket), number = '' as number | '', placed = 0, tokens = 1, sign = HEARD as string } = {},
): Operation => ({
  script: TURN,
  of: withQueue,
  args: () => [sign, give, ownerPart(ticket), TTL_MS, tokens, place, number, placed, 1],
});
const voteOrQueue = (place: string, epoch = '', proposal?: number): Operation => ({
  script: VOTE_OR_QUEUE,
  of: ({ lock, shard, queue }) => [GUARD, lock, shard, queue],
  args: (nowUs) => [epoch, TTL_MS, `me@${tokenText(proposal ?? nowUs)}`, place, 0, 1],
});
const extend: Operation = { script: EXTEND, of: lockOnly, args: () => [TTL_MS, 'me@'] };
const extendAndTell: Operation = {
  script: EXTEND_AND_TELL,
  of: ({ lock, calls }) => [lock, calls],
  args: () => [TTL_MS, 'me@', 3, TTL_MS],
};
const restore: Operation = { script: RESTORE, of: lockOnly, args: () => [TTL_MS, 'me@', tokenText(AHEAD)] };
const raise: Operation = {
  script: RAISE_FENCE,
  of: ({ lock, shard }) => [lock, shard],
  args: () => ['me@', tokenText(AHEAD)],
};
const inspect: Operation = { script: INSPECT, of: ({ lock, queue, calls }) => [lock, queue, calls], args: () => [] };
const release: Operation = { script: RELEASE, of: withQueue, args: () => ['me@'] };
const keep: Operation = { script: KEEP, of: lockOnly, args: () => [TTL_MS, 'me@'] };
const forceRelease: Operation = { script: FORCE_RELEASE, of: withQueue, args: () => ['inbox:', 'k', ''] };
const forceReleaseFrom: Operation = { script: FORCE_RELEASE, of: withQueue, args: () => ['inbox:', 'k', 'other'] };
const transfer = (mints: 0 | 1, atLeast: 0 | 1 = 0): Operation => ({
  script: TRANSFER,
  of: withFence,
  args: () => ['parcel@', 'me@', TTL_MS, mints, atLeast],
});
const crowdOf = (kind: (string | number)[], { give = '', place = '', others = '' } = {}): Operation => ({
  script: CROWD,
  of: withQueue,
  args: () => [HEARD, give, 'me', TTL_MS, ...kind, place, '', 0, 1, others],
});
const [share, permits] = [
  crowdOf(['s', 1, 0], { place: `s ${CHANNEL} me` }),
  crowdOf(['p', 1, 3], { others: 'b c d' }),
];
const leave: Operation = {
  script: CROWD,
  of: withQueue,
  args: () => [HEARD, 'me', '', 0, 's', 1, 0, '', '', 0, 0, ''],
};
const extendCrowd: Operation = { script: EXTEND_CROWD, of: lockOnly, args: () => [TTL_MS, 'me'] };
const downgrade: Operation = { script: DOWNGRADE, of: withQueue, args: () => ['me@', 'me/s', TTL_MS] };
/** Each has the same time left as a lock that is held. */
const heldTogether =
  (head: string, ...owners: string[]): Prepare =>
  async (keys) => {
    const end = Date.now() + TTL_MS;
    const members = owners.map((owner) => `${end} 1 ${head === '~p' ? 3 : 0} ${owner}`);
    await heldAs(`${head} ${members.join(' ')}`)(keys);
  };
const READERS = `~s@${tokenText(TOKEN)}`;
const withdraw: Operation = { script: WITHDRAW, of: withQueue, args: () => ['me@', entry('me')] };

const CASES: [what: string, operation: Operation, before: Prepare][] = [
  ['acquire: a free lock', acquire, free],
  ['acquire: its own lock', acquire, held('me', GRANT_TTL_MS)],
  ['acquire: its own lock, with a queue', acquire, wanted('me', GRANT_TTL_MS)],
  ['acquire: a lock that is held', acquire, held('other')],
  ['acquire: a lock that is held, with a queue', acquire, wanted('other')],
  ['acquire: a lock of another program', acquire, heldAs('me')],
  ['acquire: a lock that is no string', acquire, noString],
  ['acquire: a counter that is ahead of the clock', acquire, counter(AHEAD)],
  ['acquire: a counter that is out of range', acquire, counter(9e15)],
  ['acquire: a counter that is a word', acquire, counter('word')],
  ['acquire: a counter that is a list', acquire, counterIsAList],
  ['acquire: its own lock, which is kept', acquire, kept('me', GRANT_TTL_MS)],
  ['vote: a free lock', vote(), free],
  ['vote: its own lock, which is kept', vote(), kept('me', GRANT_TTL_MS)],
  ['vote: a counter that is behind', vote(), counter(TOKEN)],
  ['vote: its own lock', vote(), held('me', GRANT_TTL_MS)],
  ['vote: its own lock, with a queue', vote(), wanted('me', GRANT_TTL_MS)],
  ['vote: a lock that is held', vote(), held('other')],
  ['vote: a lock that is held, with a queue', vote(), wanted('other')],
  ['vote: a proposal that is too far ahead', vote('', AHEAD), free],
  ['vote: a proposal that is too far behind', vote('', TOKEN), free],
  ['vote: a node that is admitted', vote('7'), admitted('7')],
  ['vote: a node that is admitted, too far ahead', vote('7', AHEAD), admitted('7')],
  ['vote: a node that has lost its data', vote('7'), free],
  ['vote: a node that has lost its data, too far ahead', vote('7', AHEAD), admitted('8')],
  ['vote: a counter that is ahead of the clock', vote('7'), counter(AHEAD)],
  ['vote: a counter that is out of range', vote(), counter(9e15)],
  ['vote: a counter that is a word', vote(), counter('word')],
  ['vote: a counter that is a list', vote(), counterIsAList],
  ['contend: a free lock', contend('me'), free],
  ['contend: many tokens', contend('me', { tokens: 64 }), free],
  ['contend: a place behind others', contend('me'), both(wanted('other'), waitedFor(entry('first')))],
  ['contend: the first place', contend('me'), held('other')],
  ['contend: a place behind another program', contend('me'), heldAs('other')],
  [
    'contend: a place of its own',
    contend('me', { number: 1, placed: 1 }),
    both(wanted('other'), waitedFor(entry('me'))),
  ],
  [
    'contend: a place that it has lost',
    contend('me', { number: 0.5, placed: 1 }),
    both(wanted('other'), waitedFor(entry('first'))),
  ],
  ['contend: a place behind a lock that is kept', contend('me'), kept('other')],
  ['contend: its own lock, which is kept', contend('me', { place: '' }), kept('me', GRANT_TTL_MS)],
  ['contend: without a place', contend('me', { place: '' }), held('other')],
  ['contend: what was granted to it', contend('me'), both(wanted('me', GRANT_TTL_MS), waitedFor(entry('me')))],
  ['contend: its own lock without a queue', contend('me'), held('me', GRANT_TTL_MS)],
  ['contend: a lock that is no string', contend('me'), noString],
  ['contend: a counter that is a list', contend('me'), counterIsAList],
  ['contend: first in the queue', contend('me'), waitedFor(entry('me'), entry('next'))],
  ['contend: somebody is first', contend('me'), waitedFor(entry('first'), entry('next'))],
  ['contend: somebody is first, who came later', contend('me', { number: 0.5 }), waitedFor(entry('first'))],
  ['contend: nobody hears of it', contend('me'), waitedFor(nobody, nobody)],
  ['contend: without a place', contend('me', { place: '' }), waitedFor(entry('first'))],
  ['contend: gives back what nobody waits for', contend('me', { give: 'mine@' }), held('mine')],
  [
    'contend: gives back what others wait for',
    contend('me', { give: 'mine@' }),
    both(wanted('mine'), waitedFor(entry('first'))),
  ],
  [
    'contend: gives back what others hold',
    contend('me', { give: 'mine@' }),
    both(wanted('other'), waitedFor(entry('first'))),
  ],
  ['contend: gives back what nobody holds', contend('me', { give: 'mine@' }), free],
  ['vote or queue: a free lock', voteOrQueue(wake), free],
  ['vote or queue: its own lock', voteOrQueue(wake), held('me', GRANT_TTL_MS)],
  ['vote or queue: its own lock, with a queue', voteOrQueue(wake), both(wanted('me'), waitedFor(wake))],
  ['vote or queue: a place', voteOrQueue(wake), held('other')],
  ['vote or queue: a place behind a lock that is kept', voteOrQueue(wake), kept('other')],
  ['vote or queue: a place behind others', voteOrQueue(wake), both(wanted('other'), waitedFor(entry('first')))],
  ['vote or queue: no place', voteOrQueue(''), held('other')],
  ['vote or queue: a lock that is no string', voteOrQueue(wake), noString],
  ['vote or queue: a proposal that is too far ahead', voteOrQueue(wake, '', AHEAD), free],
  ['vote or queue: a node that has lost its data', voteOrQueue(wake, '7'), free],
  ['vote or queue: a counter that is ahead of the clock', voteOrQueue(wake, '7'), counter(AHEAD)],
  ['vote or queue: a counter that is a word', voteOrQueue(wake), counter('word')],
  ['vote or queue: a counter that is a list', voteOrQueue(wake), counterIsAList],
  ['extend: its own lock', extend, held('me', GRANT_TTL_MS)],
  ['extend: its own lock, with a queue', extend, wanted('me', GRANT_TTL_MS)],
  ['extend: its own lock, which is kept', extend, kept('me', GRANT_TTL_MS)],
  ['extend: a free lock', extend, free],
  ['extend: a lock of another', extend, held('other')],
  ['extend: a lock of another, with a queue', extend, wanted('other')],
  ['extend: a lock that is no string', extend, noString],
  ['extend and tell: its own lock', extendAndTell, held('me', GRANT_TTL_MS)],
  ['extend and tell: its own lock, with a queue', extendAndTell, wanted('me', GRANT_TTL_MS)],
  ['extend and tell: its own lock, which is kept', extendAndTell, kept('me', GRANT_TTL_MS)],
  ['extend and tell: again', extendAndTell, both(held('me', GRANT_TTL_MS), toldBefore('me@5'))],
  ['extend and tell: a free lock', extendAndTell, free],
  ['extend and tell: a lock of another', extendAndTell, both(held('other'), toldBefore('other@5'))],
  ['extend and tell: a lock that is no string', extendAndTell, noString],
  ['restore: its own lock', restore, held('me', GRANT_TTL_MS)],
  ['restore: its own lock, with a queue', restore, wanted('me', GRANT_TTL_MS)],
  ['restore: its own lock, which is kept', restore, kept('me', GRANT_TTL_MS)],
  ['restore: a free lock', restore, free],
  ['restore: a lock of another', restore, held('other')],
  ['restore: a lock of another, with a queue', restore, wanted('other')],
  ['restore: a lock that is no string', restore, noString],
  ['raise the fence: its own lock', raise, both(held('me'), counter(TOKEN))],
  ['raise the fence: its own lock, with a queue', raise, both(wanted('me'), counter(TOKEN))],
  ['raise the fence: a counter that is lost', raise, held('me')],
  ['raise the fence: a counter above', raise, both(held('me'), counter(AHEAD + 1))],
  ['raise the fence: a vote above', raise, both(held('me', TTL_MS, AHEAD + 1), counter(AHEAD + 1))],
  ['raise the fence: a lock of another', raise, both(held('other'), counter(TOKEN))],
  ['raise the fence: a counter that is a word', raise, both(held('me'), counter('word'))],
  ['raise the fence: a counter that is a list', raise, both(held('me'), counterIsAList)],
  ['raise the fence: its own lock, which is kept', raise, both(kept('me'), counter(TOKEN))],
  ['transfer: a lock, with its token', transfer(0), held('parcel', GRANT_TTL_MS)],
  ['transfer: a lock, with a queue', transfer(0), both(wanted('parcel'), waitedFor(entry('first')))],
  ['transfer: a lock, with a new token', transfer(1), both(wanted('parcel'), counter(TOKEN))],
  ['transfer: a lock that it has already', transfer(1), both(held('me', GRANT_TTL_MS), counter(TOKEN))],
  ['transfer: a lock that it has already, with a queue', transfer(1), wanted('me', GRANT_TTL_MS)],
  ['transfer: a lock of which less is left, for at least the ttl', transfer(1, 1), held('parcel', GRANT_TTL_MS)],
  ['transfer: a lock of which more is left, for at least the ttl', transfer(1, 1), held('parcel', 2 * TTL_MS)],
  ['transfer: a lock that it has already, of which more is left', transfer(0, 1), held('me', 2 * TTL_MS)],
  ['transfer: a free lock', transfer(1), free],
  ['transfer: a lock of another', transfer(1), held('other')],
  ['transfer: a lock that is kept', transfer(1), kept('parcel')],
  ['transfer: a lock of another program', transfer(1), heldAs('parcel')],
  ['transfer: a lock that is no string', transfer(1), noString],
  ['transfer: a counter that is ahead of the clock', transfer(1), both(held('parcel'), counter(AHEAD))],
  ['transfer: a counter that is a list', transfer(1), both(held('parcel'), counterIsAList)],
  ['keep: its own lock', keep, held('me', GRANT_TTL_MS)],
  ['keep: its own lock, with a queue', keep, both(wanted('me', GRANT_TTL_MS), waitedFor(entry('first')))],
  ['keep: its own lock, which is kept', keep, kept('me', GRANT_TTL_MS)],
  ['keep: a free lock', keep, free],
  ['keep: a lock of another', keep, held('other')],
  ['keep: a lock that is no string', keep, noString],
  ['inspect: a lock that is held', inspect, both(held('other'), counter(AHEAD))],
  ['inspect: a lock that is waited for', inspect, wanted('other')],
  ['inspect: a lock whose holder has told', inspect, both(held('other'), toldBefore('other@5'))],
  ['inspect: a lock whose last holder has told', inspect, both(held('other'), toldBefore('another@5'))],
  [
    'inspect: a queue in which all but one are silent',
    inspect,
    both(wanted('other'), oneIsSilent, waitedFor(nobody, 'by hand', entry('second'), unheard)),
  ],
  ['inspect: a lock that is kept', inspect, kept('other')],
  ['inspect: a lock of another program', inspect, heldAs('other')],
  ['inspect: a free lock', inspect, free],
  ['release: its own lock', release, held('me')],
  ['release: its own lock, which nobody waits for any more', release, wanted('me')],
  ['release: its own lock, with a queue that its value does not know', release, both(held('me'), waitedFor(wake))],
  ['release: its own lock, which is kept', release, both(kept('me'), waitedFor(entry('first')))],
  ['release: to the next', release, both(wanted('me'), waitedFor(nobody, entry('first'), entry('second')))],
  ['release: with a counter that is ahead', release, both(wanted('me'), counter(AHEAD), waitedFor(entry('first')))],
  ['release: with a counter that is a word', release, both(wanted('me'), counter('word'), waitedFor(entry('first')))],
  ['release: with a counter that is a list', release, both(wanted('me'), counterIsAList, waitedFor(entry('first')))],
  [
    'release: to one who is not heard of here',
    release,
    both(wanted('me'), isUnheard, waitedFor(unheard, entry('second'))),
  ],
  [
    'release: past those who are silent',
    release,
    both(wanted('me'), oneIsSilent, waitedFor(nobody, unheard, entry('third'))),
  ],
  ['release: to one who is silent, as all are', release, both(wanted('me'), isUnheard, waitedFor(unheard))],
  ['release: wakes one', release, both(wanted('me'), waitedFor(wake, entry('second')))],
  ['release: a queue by hand', release, both(wanted('me'), waitedFor('by hand'))],
  ['release: nobody hears of it', release, both(wanted('me'), waitedFor(nobody))],
  ['release: a lock of another', release, both(wanted('other'), waitedFor(entry('first')))],
  ['release: a lock of another, without a queue', release, held('other')],
  ['release: a free lock', release, free],
  ['release: a lock that is no string', release, noString],
  ['force release: a lock that is held', forceRelease, held('other')],
  ['force release from an owner: its lock', forceReleaseFrom, held('other')],
  ['force release from an owner: the lock of another', forceReleaseFrom, held('another')],
  ['force release from an owner: a lock that is kept', forceReleaseFrom, kept('other')],
  ['force release from an owner: a lock that is no string', forceReleaseFrom, noString],
  ['force release: to the next', forceRelease, both(wanted('other'), waitedFor(nobody, entry('first')))],
  ['force release: a lock that is kept, to the next', forceRelease, both(kept('other'), waitedFor(entry('first')))],
  ['force release: of a process that listens', forceRelease, held('alive/1')],
  [
    'force release: of a process that listens, to the next',
    forceRelease,
    both(wanted('alive/1'), isUnheard, waitedFor(unheard)),
  ],
  ['force release: a lock that is no string', forceRelease, noString],
  ['force release: a free lock', forceRelease, waitedFor(entry('first'))],
  ['share: a free lock', share, free],
  ['share: a lock that is held', share, held('other')],
  ['share: beside others', share, heldTogether(READERS, 'other')],
  ['share: what it shares already', share, heldTogether(READERS, 'me')],
  ['share: behind one who waits', share, both(heldTogether(READERS, 'other'), waitedFor(entry('first')))],
  ['share: a counter that is a list', share, counterIsAList],
  ['share: a lock that is no string', share, noString],
  ['permits: a free lock, with others', permits, free],
  ['permits: beside others', permits, heldTogether('~p', 'other', 'another')],
  ['permits: where there is no room', permits, heldTogether('~p', 'a', 'b', 'c')],
  ['permits: a lock that is shared', permits, heldTogether(READERS, 'other')],
  ['leave: the last one', leave, heldTogether(READERS, 'me')],
  ['leave: to those who wait', leave, both(heldTogether(READERS, 'me'), waitedFor(nobody, entry('first')))],
  ['leave: to readers who wait', leave, both(heldTogether('~p', 'me'), waitedFor(`s ${CHANNEL} a`, `s ${CHANNEL} b`))],
  ['leave: others', leave, heldTogether(READERS, 'me', 'other')],
  ['leave: what it has not', leave, heldTogether(READERS, 'other')],
  ['leave: a free lock', leave, free],
  ['extend together: what it holds', extendCrowd, heldTogether(READERS, 'other', 'me')],
  ['extend together: what it has not', extendCrowd, heldTogether(READERS, 'other')],
  ['extend together: a lock that is held alone', extendCrowd, held('me')],
  ['extend together: a free lock', extendCrowd, free],
  ['extend together: a lock that is no string', extendCrowd, noString],
  ['downgrade: its own lock', downgrade, held('me')],
  ['downgrade: its own lock, which readers wait for', downgrade, both(wanted('me'), waitedFor(`s ${CHANNEL} a`))],
  ['downgrade: the lock of another', downgrade, held('other')],
  ['downgrade: a free lock', downgrade, free],
  ['contend: a lock that others share', contend('me'), heldTogether(READERS, 'other')],
  ['inspect: a lock that several share', inspect, both(heldTogether(READERS, 'other'), waitedFor(`s ${CHANNEL} a`))],
  ['force release: a lock that several share', forceRelease, heldTogether(READERS, 'other', 'another')],
  ['withdraw: from a lock that others share', withdraw, heldTogether(READERS, 'other', 'me')],
  ['withdraw: from the queue', withdraw, both(wanted('other'), waitedFor(entry('me'), entry('next')))],
  ['withdraw: what was granted to it', withdraw, both(wanted('me'), counter(AHEAD), waitedFor(entry('next')))],
  ['withdraw: what it has without a queue', withdraw, held('me')],
  ['withdraw: what is kept', withdraw, both(kept('me'), waitedFor(entry('me'), entry('next')))],
  ['withdraw: the last in the queue', withdraw, both(wanted('me'), waitedFor(nobody))],
  ['withdraw: a lock that is no string', withdraw, noString],
];

/**
 * Numbers that differ from run to run, by what they are.
 * @param base of tokens that are ahead of the clock
 */
function told(value: unknown, base = AHEAD): unknown {
  if (Array.isArray(value)) return value.map((each) => told(each, base));
  if (value instanceof ScriptFault) return value.message.replace(/(lock:fence:)\w+/, '$1shard');
  // The ends of holders, and what is said of them, by their words.
  if (typeof value === 'string' && value.startsWith('~'))
    return value.replace(/@(\d{16})/, (_, token) => `@${String(told(token, base))}`).replace(/ \d{13} /g, ' end ');
  const [, owner, token, flag] = /^(.*@)(\d{16})([+=]?)$/.exec(String(value)) ?? [];
  if (owner !== undefined) return [owner, told(token, base), flag];
  const number = Number(value);
  if (value === '' || !Number.isFinite(number)) return value;
  if (number < -TOKEN) return 'minus the time';
  if (number > TOKEN) return number > AHEAD / 2 ? `ahead by ${number - base}` : 'by the clock';
  return number > 100 && number < TOKEN ? `${Math.ceil(number / 5_000) * 5} s` : number;
}

async function read(key: string, base: number): Promise<unknown> {
  const type = await client.type(key);
  const value =
    type === 'string'
      ? await client.get(key)
      : type === 'zset'
        ? await client.zrange(key, '0', '-1', 'WITHSCORES')
        : type === 'list' && (await client.lrange(key, 0, -1));
  return [type, told(value, base), told(await client.pttl(key))];
}

/** The counter that all share, where it is a number. */
const tokens = async () => ((await client.type(FENCE)) === 'string' ? Number(await client.get(FENCE)) : NaN);

/** @param minted how many tokens each of the locks before has taken from the counter that all share */
async function outcome(
  operation: Operation,
  before: Prepare,
  names: string[],
  minted: number,
  ask: (run: () => Promise<Reply>[]) => Promise<Reply>[],
) {
  await client.flushall();
  const locks = names.map(keysOf);
  for (const keys of locks) await before(keys);
  heard.length = 0;
  const counted = await tokens();
  const { script, of } = operation;
  const nowUs = (Date.now() + 900) * 1_000; // near the time of the node for two seconds nearly
  const replies = await Promise.allSettled(
    ask(() => locks.map((keys) => runScript(runner, script, of(keys), operation.args(nowUs)))),
  );
  await client.publish(CHANNEL, 'last');
  await until(() => heard.includes('last'), { what: 'all messages are heard' });
  const messages = heard.filter((text) => text !== 'last').map((text) => readMessage(text));
  const base = (index: number) => AHEAD + index * minted;
  return {
    replies: replies.map((reply, at) => told(reply.status === 'fulfilled' ? reply.value : reply.reason, base(at))),
    states: await Promise.all(
      locks.map(async ({ lock, queue, shard, calls }, index) => ({
        lock: await read(lock, base(index)),
        shard: await read(shard, AHEAD),
        queue: await read(queue, AHEAD),
        calls: await read(calls, AHEAD),
      })),
    ),
    fence: await read(FENCE, base(locks.length - 1)),
    minted: (await tokens()) - counted || 0, // of an absent counter it is not known, and does not matter
    messages: messages.map(({ ticket, grant, takenKey }, index) => {
      const at = Math.floor(index / (messages.length / locks.length));
      return [ticket, told(grant?.fencingToken ?? '', base(at)), takenKey];
    }),
  };
}

describe('A script does for each of many locks what it does for one alone', () => {
  it.each(CASES)('%s', async (_what, operation, before) => {
    const alone = await outcome(operation, before, ['one'], 0, (run) => run());
    await client.config('RESETSTAT');
    const many = await outcome(operation, before, ['a', 'b', 'c'], alone.minted, (run) => together(runner, run));
    expect((await server.calls()).evalsha).toBe(2); // with the one that keeps the server at work
    const thrice = <T>([one]: T[]) => [one, one, one];
    expect(many.replies).toEqual(thrice(alone.replies));
    expect(many.states).toEqual(thrice(alone.states));
    expect(many.fence).toEqual(alone.fence);
    expect(many.messages).toEqual([...alone.messages, ...alone.messages, ...alone.messages]);
  });

  it('and these are all the scripts that are asked for locks', () => {
    const every = Object.values<Script>(LUA).filter(({ name }) => !['admit', 'initialise'].includes(name));
    expect(every.length).toBeGreaterThan(9);
    expect(new Set(CASES.map(([, { script }]) => script.name))).toEqual(new Set(every.map(({ name }) => name)));
  });
});
