import { describe, expect, it } from 'vitest';
import * as scripts from '../../lib/stores/redis/scripts/lua.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';
import {
  AHEAD,
  CHANNEL,
  client,
  NOT_LISTENING,
  FENCE,
  LISTENING,
  heard,
  onServer,
  queueEntry,
  type Reply,
  run,
  runner,
  type Script,
  server,
  UNVERIFIED,
  whileFull,
} from './script-server.js';

/** The ttl that a script gives a lock: `long`. The ttl of a lock before: `short`. The ttl of a grant: `brief`. */
const [TTL_MS, EARLIER_MS, GRANT_MS] = [30_000, 10_000, 2_000];
/** The token of a grant in the past: `T`. */
const T = 17e14;

/** The keys of one lock. */
const keysOf = (name: string) => ({
  lock: `lock:{${name}}`,
  /** The counter that it shares with all others. */
  fence: FENCE,
  /** The counter of its shard, for votes. */
  shard: `${FENCE}:${name}`,
  queue: `lock:{${name}}:queue`,
  calls: `lock:{${name}}:calls`,
  guard: 'lock:admission',
});
type Keys = ReturnType<typeof keysOf>;

onServer();

/**
 * Places in a queue, by their names in the table: a call that waits for a turn, a reader, a place of a Redlock, and
 * places of other processes.
 */
function placeOf(name: string): string {
  const [kind, ticket] = name.split('/');
  if (kind === 'reader') return `s ${CHANNEL} ${ticket}`;
  if (kind === 'woken') return queueEntry('wake', CHANNEL, ticket!, 1);
  if (kind === 'lost') return queueEntry('wake', 'inbox:nobody', ticket!, 1);
  if (name === 'by-hand') return 'by hand';
  const channel = { gone: 'inbox:nobody', elsewhere: 'inbox:elsewhere' }[name] ?? CHANNEL;
  return queueEntry('grant', channel, name, name === 'elsewhere' ? 3 : 1);
}

/** Creates a lock, and the contents of its other keys, as the table says. */
async function prepare({ lock, fence, shard, queue, calls, guard }: Keys, state: string): Promise<void> {
  const [held, ...others] = state.split('; ');
  const tokens = (text: string) =>
    text.replace(/AHEAD(\+1)?/, (_, one) => `${AHEAD + (one ? 1 : 0)}`).replace('T', `${T}`);
  const put = (keys: string[], text: string) =>
    Promise.all(keys.map((key) => (text === 'list' ? client.rpush(key, 'a', 'list') : client.set(key, tokens(text)))));
  if (held !== 'free') {
    const [text, time] = held!.split(/ (endless|for 60 s)$/);
    const [head, ...owners] = text!.split(' ');
    const member = (owner: string) => `${Date.now() + EARLIER_MS} 1 ${head === '~p' ? 3 : 0} ${owner}`;
    await put([lock], head!.startsWith('~') ? `${head} ${owners.map(member).join(' ')}` : text!);
    if (time !== 'endless' && text !== 'list') await client.pexpire(lock, time ? 2 * TTL_MS : EARLIER_MS);
  }
  for (const [what, ...names] of others.map((other) => other.split(' '))) {
    const [name] = names as [string];
    const sign = (kind: string, agoMs: number) =>
      client.zadd(queue, (agoMs - Date.now()) * 1_000, `${kind} inbox:${name}`);
    if (what === 'counter') await put([fence, shard], name);
    if (what === 'admitted') await put([guard], name === 'list' ? name : `${name} 20 run`);
    if (what === 'told') await client.set(calls, name, 'PX', EARLIER_MS);
    if (what === 'queue') await client.zadd(queue, ...names.flatMap((each, index) => [index + 1, placeOf(each)]));
    if (what === 'heard') await sign(LISTENING, 0);
    if (what === 'unheard') await sign(UNVERIFIED, 0);
    if (what === 'deaf') await sign(NOT_LISTENING, 0);
    if (what === 'silent') await sign(UNVERIFIED, 2_500);
  }
}

/**
 * A script, with the keys of the lock that it takes, and its arguments.
 * @param nowUs the time
 */
type Operation = [script: Script, keys: (keyof Keys)[], args: (nowUs: number) => (string | number)[]];
const FREES: (keyof Keys)[] = ['fence', 'lock', 'queue'];
const operations = (me: string): Record<string, Operation> => {
  const vote = (proposal?: number, epoch = ''): Operation => [
    scripts.VOTE,
    ['guard', 'lock', 'shard'],
    (nowUs) => [epoch, TTL_MS, `${me}@${proposal ?? nowUs}`],
  ];
  const voteOrQueue = (place = placeOf(`woken/${me}`), proposal?: number, epoch = ''): Operation => [
    scripts.VOTE_OR_QUEUE,
    ['guard', 'lock', 'shard', 'queue'],
    (nowUs) => [epoch, TTL_MS, `${me}@${proposal ?? nowUs}`, place, 0, 1],
  ];
  const turn = ({ give = '', place = placeOf(me), number = '' as number | '', placed = 0, tokens = 1 } = {}) =>
    [scripts.TURN, FREES, () => ['h', give, `${me}@`, TTL_MS, tokens, place, number, placed, 1]] as Operation;
  const joins = (kind: (string | number)[], place = '', others = ''): Operation => [
    scripts.ACQUIRE_TOGETHER,
    FREES,
    () => ['h', '', me, TTL_MS, ...kind, place, '', 0, 1, others],
  ];
  const forceRelease = (from = ''): Operation => [scripts.FORCE_RELEASE, FREES, () => ['inbox:', 'a key', from]];
  const transfer = (mints: 0 | 1, atLeast: 0 | 1 = 0): Operation => [
    scripts.TRANSFER,
    ['fence', 'lock'],
    () => ['parcel@', `${me}@`, TTL_MS, mints, atLeast],
  ];
  return {
    acquire: [scripts.ACQUIRE, ['fence', 'lock'], () => [TTL_MS, `${me}@`]],
    'acquire in order': [scripts.ACQUIRE_IN_ORDER, ['fence', 'lock', 'queue'], () => [TTL_MS, `${me}@`]],
    vote: vote(),
    'vote for a proposal that is too far ahead': vote(AHEAD),
    'vote in the epoch 7': vote(undefined, '7'),
    'vote in the epoch 7, too far ahead': vote(AHEAD, '7'),
    'vote in the epoch 7, too far behind': vote(T, '7'),
    'vote for a proposal that is too far behind': vote(T),
    'vote or queue': voteOrQueue(),
    'vote or queue, without a place': voteOrQueue(''),
    'vote or queue, for a proposal that is too far ahead': voteOrQueue('', AHEAD),
    'vote or queue, in the epoch 7': voteOrQueue('', undefined, '7'),
    turn: turn(),
    'turn, without a place': turn({ place: '' }),
    'turn, at its place': turn({ number: 1, placed: 1 }),
    'turn, at the place that it had': turn({ number: 0.5, placed: 1 }),
    'turn, of one who came first': turn({ number: 0.5 }),
    'turn, which gives a lock back': turn({ give: 'mine@' }),
    extend: [scripts.EXTEND, ['lock'], () => [TTL_MS, `${me}@`]],
    'extend and report': [scripts.EXTEND_AND_REPORT, ['lock', 'calls'], () => [TTL_MS, `${me}@`, 3, TTL_MS]],
    restore: [scripts.RESTORE, ['lock'], () => [TTL_MS, `${me}@`, AHEAD]],
    'raise the fence': [scripts.RAISE_FENCE, ['lock', 'shard'], () => [`${me}@`, AHEAD]],
    transfer: transfer(0),
    'transfer with a new token': transfer(1),
    'transfer with a new token, for at least the ttl': transfer(1, 1),
    'transfer for at least the ttl': transfer(0, 1),
    keep: [scripts.KEEP, ['lock'], () => [TTL_MS, `${me}@`]],
    inspect: [scripts.INSPECT, ['lock', 'queue', 'calls'], () => []],
    release: [scripts.RELEASE, FREES, () => [`${me}@`]],
    'force release': forceRelease(),
    'force release from an owner': forceRelease('other'),
    share: joins(['s', 1, 0], placeOf(`reader/${me}`)),
    permits: joins(['p', 1, 3], '', 'b c d'),
    leave: [scripts.ACQUIRE_TOGETHER, FREES, () => ['h', me, '', 0, 's', 1, 0, '', '', 0, 0, '']],
    'extend together': [scripts.EXTEND_TOGETHER, ['lock'], () => [TTL_MS, me]],
    downgrade: [scripts.DOWNGRADE, FREES, () => [`${me}@`, `${me}/s`, TTL_MS]],
    withdraw: [scripts.WITHDRAW, FREES, () => [`${me}@`, placeOf(me)]],
  };
};
const OPERATIONS = operations('me');

function ask(name: string, keys: Keys, me = 'me', nowUs = T + 1): Promise<Reply> {
  const [script, of, args] = operations(me)[name]!;
  const theirs = of.map((key) => keys[key]);
  return run(script, theirs, ...args(nowUs));
}

/**
 * Each row says the state of a lock before, the answer of a script, and the state after it. A lock is its value and its
 * remaining time, then the contents of its other keys, then the messages to waiting calls. T is the token of a grant in
 * the past, `now` a time.
 */
const TABLE = `
  acquire
    free => now | me@now long; counter now
    me@T => T | me@T long
    me@T+ => T | me@T+ long
    me@T= => refused short me@T= | me@T= short
    other@T => refused short other@T | other@T short
    me => refused short me | me short
    list => WRONGTYPE | a list endless
    free; counter AHEAD => AHEAD+1 | me@AHEAD+1 long; counter AHEAD+1
    free; counter list => ERR the fencing counter lock:fence: WRONGTYPE | free; counter a list
  acquire in order
    free => now | me@now long; counter now
    me@T => T | me@T long
    other@T => refused short other@T | other@T short
    free; queue first => queue | free; queue first
    free; queue gone => queue | free; queue gone
    me@T+; queue first => queue | me@T+ short; queue first
    free; counter AHEAD => AHEAD+1 | me@AHEAD+1 long; counter AHEAD+1
  vote
    free => now | me@now long; counter now
    me@T => T | me@T long
    me@T+ => T | me@T+ long
    me@T= => refused short me@T= | me@T= short
    other@T => refused short other@T | other@T short
    free; counter word => at now now | me@now long; counter now
    free; counter list => ERR the fencing counter lock:fence:shard: WRONGTYPE | free; counter a list
  vote for a proposal that is too far ahead
    free => at now now | me@now long; counter now
  vote in the epoch 7
    free; admitted 7 => now | me@now long; counter now
    free => wiped 7 | free
    free; counter AHEAD => at AHEAD+1 now | me@AHEAD+1 long; counter AHEAD+1
    free; admitted 77 => wiped 7 | free
    free; admitted list => wiped 7 | free
    free; admitted 8; counter T => now | me@now long; counter now
    me@T => T | me@T long
  vote in the epoch 7, too far ahead
    free => wiped 7 | free
  vote in the epoch 7, too far behind
    free => wiped 7 | free
  vote for a proposal that is too far behind
    free => at now now | me@now long; counter now
  vote or queue
    free => now | me@now+ long; counter now
    me@T => T | me@T long
    me@T+; queue woken/me => T | me@T+ long
    other@T => refused short other@T 0 | other@T+ short; queue me
    other@T= => refused short other@T= 0 | other@T= short; queue me
    other@T+; queue first => refused short other@T+ 0 | other@T+ short; queue first me
    list => WRONGTYPE | a list endless
  vote or queue, without a place
    me@T= => refused short me@T= 0 | me@T= short
    other@T => refused short other@T 0 | other@T short
  vote or queue, for a proposal that is too far ahead
    free => at now now | me@now+ long; counter now
  vote or queue, in the epoch 7
    free => wiped 7 | free
    free; counter AHEAD => at AHEAD+1 now | me@AHEAD+1+ long; counter AHEAD+1
  turn
    free => granted 0 now now now now | me@now+ long; counter now
    me@T => granted 0 now now now now | me@now+ long; counter now
    me@T+; queue me => granted 0 now now now now | me@now+ long; counter now
    other@T => refused 0 now short other@T 0 0 | other@T+ short; queue me
    other@T+; queue first => refused 0 now short other@T+ 0 0 | other@T+ short; queue first me
    other@T= => refused 0 now short other@T= 0 0 | other@T= short; queue me
    other@T endless => refused 0 now -1 other@T 0 0 | other@T+ endless; queue me
    list => WRONGTYPE | a list endless
    free; queue me next => granted 0 now now now 2 | me@now+ long; counter now; queue next
    free; queue first next => refused 0 now brief first@now+ 0 0 | first@now+ brief; counter now; queue next me; first hears now
    free; queue gone => granted 0 now now now now | me@now+ long; counter now; me hears now
    free; counter list => ERR the fencing counter lock:fence: WRONGTYPE | free; counter a list
    ~s@T other => refused 0 now short ~s@T short 1 0 other 0 0 | ~s@T short 1 0 other short; queue me
  turn, without a place
    me@T= => refused 0 now short me@T= 0 0 | me@T= short
    other@T => refused 0 now short other@T 0 0 | other@T short
    free; queue first => refused 0 now brief first@now+ 0 0 | first@now+ brief; counter now; first hears now
  turn, at its place
    other@T+; queue me => refused 0 now short other@T+ 0 0 | other@T+ short; queue me
  turn, at the place that it had
    other@T+; queue first => refused 0 now short other@T+ 1 0 | other@T+ short; queue first me
  turn, of one who came first
    free; queue first => granted 0 now now now 1 | me@now+ long; counter now; queue first
  turn, which gives a lock back
    mine@T => granted 1 now now now now | me@now+ long; counter now
    mine@T+; queue first => refused 1 now brief first@now+ 0 0 | first@now+ brief; counter now; queue me; first hears now
    other@T+ => refused -1 now short other@T+ 0 0 | other@T+ short; queue me
    free => granted 0 now now now now | me@now+ long; counter now
    mine@T; counter 9e18 => failed 1 ERR the fencing counter lock:fence is out of range: delete it | free; counter 9e18
  extend
    me@T => 1 | me@T long
    me@T+ => 1 | me@T+ long
    me@T= => -1 | me@T= short
    free => 0 | free
    list => -1 | a list endless
  extend and report
    me@T+ => 1 | me@T+ long; told me@3 long
    me@T; told me@5 => 1 | me@T long; told me@3 long
    me@T= => -1 | me@T= short
    free => 0 | free
    other@T; told other@5 => -1 | other@T short; told other@5 short
  restore
    me@T+ => 1 | me@T+ long
    me@T= => -1 | me@T= short
    free => 2 | me@AHEAD+ long
    list => -1 | a list endless
  raise the fence
    me@T; counter T => 1 | me@AHEAD short; counter AHEAD
    me@T+; counter T; queue woken/next => 1 | me@AHEAD+ short; counter AHEAD; queue next
    me@T=; counter T => 0 | me@T= short; counter T
    me@T => 0 | me@T short
    me@T; counter AHEAD+1 => 1 | me@AHEAD short; counter AHEAD+1
    me@AHEAD+1; counter AHEAD+1 => 0 | me@AHEAD+1 short; counter AHEAD+1
    me@T; counter 7 => 1 | me@AHEAD short; counter AHEAD
    me@T; counter word => 1 | me@AHEAD short; counter AHEAD
    me@T+; counter list => ERR the fencing counter lock:fence:shard: WRONGTYPE | me@T+ short; counter a list
    me; counter T => 0 | me short; counter T
    list => WRONGTYPE | a list endless
    me@T0; counter T => 0 | me@17000000000000000 short; counter T
    me@T++; counter T => 0 | me@T++ short; counter T
  transfer
    parcel@T => T | me@T long
  transfer with a new token
    parcel@T+; queue first => now | me@now+ long; counter now; queue first
    me@T+; counter T => T | me@T+ long; counter T
    free => 0 | free
    parcel@T= => -1 | parcel@T= short
    parcel => -1 | parcel short
    list => -1 | a list endless
    parcel@T; counter AHEAD => AHEAD+1 | me@AHEAD+1 long; counter AHEAD+1
    parcel@T; counter list => ERR the fencing counter lock:fence: WRONGTYPE | parcel@T short; counter a list
  transfer with a new token, for at least the ttl
    parcel@T => now | me@now long; counter now
  transfer for at least the ttl
    parcel@T for 60 s => T | me@T long
  keep
    me@T => 1 | me@T= long
    me@T+; queue first => 1 | me@T= long; queue first
    me@T= => 1 | me@T= long
    free => 0 | free
    list => -1 | a list endless
  inspect
    other@T; told other@5 => short other@T now 5 | other@T short; told other@5 short
    x/1@T+; told x/10@5 => short x/1@T+ now '' | x/1@T+ short; told x/10@5 short
    other@T=; told other@5 => short other@T= now '' | other@T= short; told other@5 short
    other@T; told other@5x => short other@T now '' | other@T short; told other@5x short
    other@T+; queue gone by-hand first; silent nobody; heard alive => short other@T+ now '' first '' | other@T+ short; queue gone by-hand first
    ~s@T other; queue reader/a; heard alive => short ~s@T short 1 0 other now '' a '' | ~s@T short 1 0 other short; queue a
    other => short other now '' | other short
    free => 0 | free
  release
    me@T => 1 | free
    me@T+ => 1 | free
    me@T; queue first => 1 | free; queue first
    me@T=; queue first => 1 | first@now+ brief; counter now; first hears now
    me@T+; queue gone first second => 1 | first@now+ brief; counter now; queue second; first hears now
    me@T+; counter AHEAD; queue first => 1 | first@AHEAD+1+ brief; counter AHEAD+1; first hears AHEAD+1
    me@T+; counter list; queue first => 1 | free; counter a list; first hears to ask
    me@T+; queue elsewhere second; unheard elsewhere => 1 | elsewhere@now+ brief; counter now; queue second
    me@T+; queue elsewhere second; silent elsewhere; heard alive => 1 | second@now+ brief; counter now; second hears now
    me@T+; queue elsewhere; silent elsewhere => 1 | elsewhere@now+ brief; counter now
    me@T+; queue lost/lost woken/woken woken/second => 1 | free; queue second; woken hears to ask
    me@T+; queue by-hand => 1 | free; queue by-hand
    me@T+; queue first second; deaf alive => 1 | first@now+ brief; counter now; queue second
    me@T+; queue first elsewhere; silent alive; unheard elsewhere => 1 | elsewhere@now+ brief; counter now
    me@T+; counter 9e18; queue gone first second => 1 | free; counter 9e18; queue second; first hears to ask
    other@T+; queue first => -1 | other@T+ short; queue first
    free => 0 | free
    list => -1 | a list endless
  force release
    alive/1@T+; queue gone first => alone alive/1@T+ | first@now+ brief; counter now; alive/1 hears a key is taken; first hears now
    alive/1@T=; queue first => alone alive/1@T= | first@now+ brief; counter now; first hears now
    alive/1 => alone alive/1 | free
    list => alone '' | free
    free; queue first => 0 | free; queue first
    ~s@T other another => together other another | free
  force release from an owner
    other@T+ => alone other@T+ | free
    other@T= => alone other@T= | free
    other0@T => 0 | other0@T short
    list => 0 | a list endless
  share
    free => granted 0 now now 0 now 0 | ~s@now long 1 0 me long; counter now
    other@T => refused 0 now short other@T 0 0 0 | other@T+ short; queue me
    ~s@T other => granted 0 now T 0 now 0 | ~s@T short 1 0 other long 1 0 me long
    ~s@T me => granted 0 now T 0 now 0 | ~s@T long 1 0 me long
    ~s@T other; queue first => refused 0 now short ~s@T short 1 0 other 0 0 0 | ~s@T short 1 0 other short; queue first me
    free; counter AHEAD => granted 0 now AHEAD+1 0 now 0 | ~s@AHEAD+1 long 1 0 me long; counter AHEAD+1
    free; counter list => ERR the fencing counter lock:fence: WRONGTYPE | free; counter a list
    list => WRONGTYPE | a list endless
  permits
    free => granted 0 now 0 2 now 3 | ~p long 1 3 me long 1 3 b long 1 3 c long
    ~p other another => granted 0 now 0 0 now 3 | ~p short 1 3 other short 1 3 another long 1 3 me long
    ~p a b c => refused 0 now short ~p short 1 3 a 0 2 3 | ~p short 1 3 a short 1 3 b short 1 3 c short
    ~s@T other => refused 0 now short ~s@T short 1 0 other 0 0 0 | ~s@T short 1 0 other short
    ~p me b => granted 0 now 0 2 now 3 | ~p long 1 3 me long 1 3 b long 1 3 c long
  leave
    ~s@T me; queue gone first => 1 | first@now+ brief; counter now; first hears now
    ~p me; queue reader/a reader/b => 1 | ~s@now brief 1 0 a brief 1 0 b brief; counter now; a hears now; b hears now
    ~s@T me other => 1 | ~s@T short 1 0 other short
    ~s@T other => -1 | ~s@T short 1 0 other short
    free => 0 | free
  extend together
    ~s@T other me => 1 | ~s@T short 1 0 other long 1 0 me long
    ~s@T other => -1 | ~s@T short 1 0 other short
    me@T => -1 | me@T short
    free => 0 | free
    list => -1 | a list endless
  downgrade
    me@T => now | ~s@now long 1 0 me/s long; counter now
    me@T+; queue reader/a => now | ~s@now long 1 0 me/s brief 1 0 a long; counter now; a hears now
    ~s@T me/s => T | ~s@T long 1 0 me/s long
    me@T= => -1 | me@T= short
    me@T; counter list => ERR the fencing counter lock:fence: WRONGTYPE | me@T short; counter a list
    free => 0 | free
  withdraw
    other@T+; queue me next => 0 | other@T+ short; queue next
    me@T+; counter AHEAD; queue next => 1 | next@AHEAD+1+ brief; counter AHEAD+1; next hears AHEAD+1
    me@T => 1 | free
    me@T=; queue me next => 0 | me@T= short; queue next
    ~s@T other me => 1 | ~s@T short 1 0 other short
    list; queue me => -1 | a list endless
`;
const CASES = TABLE.trim()
  .split(/\n {2}(?! )/)
  .map((group) => group.split('\n').map((row) => row.trim()))
  .flatMap(([script, ...rows]) => rows.map((row) => [script!, ...(row.split(' => ') as [string, string])] as const));

/** The remaining time, as a word. */
function leftOf(ms: number): string {
  if (ms < 0) return ms === -1 ? 'endless' : 'over';
  return ms > 2 * EARLIER_MS ? 'long' : ms > GRANT_MS ? 'short' : 'brief';
}

/**
 * Replaces values that differ from run to run by their meaning: tokens and times.
 * @param base of tokens that are ahead of the clock
 */
function shown(text: unknown, base = AHEAD): string {
  if (Array.isArray(text)) return text.map((each) => shown(each, base)).join(' ');
  if (text instanceof Error)
    return text.message.replace(/(lock:fence:)\w+/, '$1shard').replace(/WRONGTYPE.*/, 'WRONGTYPE');
  if (typeof text === 'number' && text > 100 && text < T) return leftOf(text);
  if (text === '') return "''";
  return String(text)
    .replace(/(?<!\d)\d{16}(?!\d)/g, (token) => {
      const number = Number(token);
      if (number > AHEAD / 2) return `AHEAD${number === base ? '' : `+${number - base}`}`;
      return number === T ? 'T' : number > T ? 'now' : token;
    })
    .replace(/(?<!\d)\d{13}(?!\d)/g, (end) => leftOf(Number(end) - Date.now()));
}

/** A lock, and the contents of its other keys, if there are any. */
async function stateOf(
  { lock, queue, calls }: Keys,
  [counter, highest]: readonly [string, number],
  base: number,
): Promise<string> {
  const read = async (key: string, from = base) => {
    const type = await client.type(key);
    return type === 'string' ? shown(await client.get(key), from) : type === 'none' ? undefined : `a ${type}`;
  };
  const places = await client.zrange(queue, '0', '+inf', 'BYSCORE').catch(() => []);
  const tickets = places.map((place) => place.split(' ')[2]?.replace(/~\d+$/, '') ?? place.replace(' ', '-'));
  const [counted, shownCalls] = [await read(counter, highest), await read(calls)];
  return [
    (await client.exists(lock)) ? `${await read(lock)} ${leftOf(await client.pttl(lock))}` : 'free',
    counted && `counter ${counted}`,
    tickets[0] && `queue ${tickets.join(' ')}`,
    shownCalls && `told ${shownCalls} ${leftOf(await client.pttl(calls))}`,
  ]
    .filter(Boolean)
    .join('; ');
}

/** The counter that all share, if it is a number. */
const minted = async () => ((await client.type(FENCE)) === 'string' ? Number(await client.get(FENCE)) : NaN);

/** @param each how many tokens each of the earlier locks has taken from the counter that all share */
async function outcomes(script: string, before: string, names: string[], each: number) {
  await client.flushall();
  const locks = names.map(keysOf);
  for (const keys of locks) await prepare(keys, before);
  heard.length = 0;
  const counted = await minted();
  const nowUs = (Date.now() + 900) * 1_000; // near the time of the node for almost two seconds
  const asked = together(runner, () => locks.map((keys) => ask(script, keys, 'me', nowUs)));
  const replies = await Promise.allSettled(asked);
  await client.publish(CHANNEL, 'last');
  await until(() => heard.some(({ ticket }) => ticket === 'last'), { what: 'all messages are heard' });
  const messages = heard.filter(({ ticket }) => ticket !== 'last');
  const perLock = messages.length / locks.length;
  const states: string[] = [];
  const counters = locks.map(({ shard }) =>
    OPERATIONS[script]![1].includes('shard')
      ? ([shard, AHEAD] as const)
      : ([FENCE, AHEAD + (locks.length - 1) * each] as const),
  );
  for (const [at, keys] of locks.entries()) {
    const base = AHEAD + at * each;
    const reply = replies[at]!;
    const mine = messages.slice(at * perLock, (at + 1) * perLock).map(({ ticket, grant, takenKey }) => {
      const what = takenKey === undefined ? shown(grant?.fencingToken ?? 'to ask', base) : `${takenKey} is taken`;
      return `${ticket} hears ${what}`;
    });
    const answer = shown(reply.status === 'fulfilled' ? reply.value : reply.reason, base);
    states.push([`${answer} | ${await stateOf(keys, counters[at]!, base)}`, ...mine].join('; '));
  }
  const values = await client.mget(locks.map(({ lock }) => lock));
  const tokens = values.map((text) => /@(\d{16})/.exec(text ?? '')?.[1]).filter((token) => Number(token) > T);
  return { states, tokens, counter: (await minted()) - counted || 0 }; // for an absent counter it does not matter
}

describe('A script does the same for a single lock and for each of many', () => {
  it.each(CASES)('%s finds %s, and so it is: %s', async (script, before, outcome) => {
    const alone = await outcomes(script, before, ['one'], 0);
    expect(alone.states).toEqual([outcome]);
    await client.config('RESETSTAT');
    const many = await outcomes(script, before, ['a', 'b', 'c'], alone.counter);
    expect(many.states).toEqual([outcome, outcome, outcome]);
    expect((await server.calls()).evalsha).toBe(2); // including the one that keeps the server busy
    const alike = OPERATIONS[script]![1].includes('fence') ? new Set(many.tokens).size : many.tokens.length;
    expect(alike).toBe(many.tokens.length);
  });

  it('and the table has all scripts that are asked for locks', () => {
    const every = Object.values<Script>(scripts).filter(({ name }) => name !== 'admit');
    expect(new Set(CASES.map(([script]) => OPERATIONS[script]![0].name))).toEqual(
      new Set(every.map(({ name }) => name)),
    );
  });
});

const FOREIGN = [
  'other',
  'foo@',
  '@',
  `@${T}`,
  '',
  `${T}`,
  `other@${T}0`,
  `other@${T / 10}`,
  `other@${T} `,
  `other@${T}++`,
];

it.each(FOREIGN)(
  'what another program wrote stays as it is, and is reported as it is, also to waiting calls: %j',
  async (text) => {
    const keys = keysOf('k');
    await client.set(keys.lock, text);
    for (const [at, script] of ['turn', 'vote or queue'].entries()) {
      expect(await ask(script, keys)).toEqual(expect.arrayContaining([-1, text]));
      expect(await client.get(keys.lock)).toBe(text);
      expect(await client.zcount(keys.queue, '0', '+inf')).toBe(at + 1);
    }
  },
);

it.each([
  ['acquire', 'refused'],
  ['turn, without a place', 'refused'],
  ['vote', 'refused'],
  ['vote or queue, without a place', 'refused'],
  ['extend', -1],
  ['extend and report', -1],
  ['restore', -1],
  ['raise the fence', 0],
  ['release', -1],
  ['keep', -1],
  ['withdraw', 0],
  ['transfer with a new token', -1],
  ['downgrade', -1],
])("an owner whose name looks like the holder's is another: %s", async (script, answer) => {
  const pairs = [
    ['x/1', 'x/10'],
    ['x', `x@${T}`],
    ['1', '11'],
  ] as const;
  for (const [holder, other] of pairs.flatMap(([a, b]) => [[a, b] as const, [b, a] as const]))
    for (const flag of ['', '+', '=']) {
      await client.flushall();
      const keys = keysOf('k');
      const text = `${holder}@${T}${flag}`;
      await prepare(keys, 'free; counter T');
      await client.set(keys.lock, text, 'PX', EARLIER_MS);
      const reply = await ask(script, keys, other);
      const refused = Array.isArray(reply) && (reply as Reply[]).includes(text);
      expect([text, other, refused ? 'refused' : reply]).toEqual([text, other, answer]);
      expect(await client.mget(keys.lock, keys.fence, keys.shard)).toEqual([text, `${T}`, `${T}`]);
      expect(await client.pttl(keys.lock)).toBeLessThanOrEqual(EARLIER_MS);
    }
});

it.each([
  ['acquire', 'free; counter AHEAD'],
  ['turn', 'free; counter AHEAD'],
  ['vote', 'free; counter AHEAD'],
  ['vote', 'free'],
  ['raise the fence', 'me@T+; counter T'],
  ['restore', 'free'],
  ['transfer with a new token', 'parcel@T; counter AHEAD'],
  ['keep', 'me@T'],
  ['permits', '~p other'],
  ['downgrade', 'me@T; counter AHEAD'],
])(
  'a script that needs memory changes nothing on a server without memory, and says so: %s, of %s',
  async (script, before) => {
    const keys = keysOf('k');
    await prepare(keys, before);
    const state = () => client.mget(keys.lock, keys.fence, keys.shard);
    const unchanged = await state();
    await expect(whileFull(() => ask(script, keys))).rejects.toMatchObject({
      message: expect.stringMatching(/OOM/),
      mayHaveRun: false,
    });
    expect(await state()).toEqual(unchanged);
  },
);

it('a lock is extended on a server without memory, though the number of its waiting calls is not stored', async () => {
  const keys = keysOf('k');
  await prepare(keys, 'me@T');
  expect(await whileFull(() => ask('extend and report', keys))).toBe(1);
  expect(await client.pttl(keys.lock)).toBeGreaterThan(EARLIER_MS);
});
