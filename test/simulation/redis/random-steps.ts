import * as scripts from '../../../lib/stores/redis/scripts/lua.js';

type Name = keyof typeof scripts;
const sources = Object.fromEntries(Object.entries(scripts).map(([name, { source }]) => [name, source])) as Record<
  Name,
  string
>;

/** One command for both servers. A script is named, and given as its source. */
export interface Step {
  readonly title: string;
  readonly args: readonly string[];
}

/** In microseconds: a time of the server in 2023, at which the tokens of a sequence begin. */
export const FIRST_US = 1_700_000_000_123_456;

/** Keys of a script, or its arguments: the ones that its locks share, and the ones of each. */
type Part = readonly [shared: string[], of: (name: string) => string[]];

/** The keys whose values are compared after each step. */
export const LOCKS = ['a', 'b', '{c}'];
const lockOf = (name: string) => `lock:{${name}}`;
const queueOf = (name: string) => `${lockOf(name)}:queue`;
const callsOf = (name: string) => `${lockOf(name)}:calls`;
export const KEYS = [
  ...LOCKS.flatMap((name) => [lockOf(name), queueOf(name), callsOf(name)]),
  'lock:fence',
  'lock:admission',
  'lock:1', // of DEBUG POPULATE
];
/** The channel with a listener. */
export const CHANNEL = 'inbox';

/**
 * Long enough that no key expires while a sequence runs, and that its remaining time equals no other number of a reply.
 */
const TTLS = ['600000', '700000'];
/** In milliseconds since 1970: other times cannot be compared, because the clocks differ. */
const LONG_AGO_MS = '1000000000000';
/** None has a space. */
const CROWD_OWNERS = ['x/2', 'é/4', '%d+/5', 'p/8', 'p/9'];
const OWNERS = ['x/1', 'x/10', 'x/2', 'y y/3', 'é/4', '%d+/5', '@7/6', '/', ''];

/**
 * Makes random steps on a few keys: commands with fitting and other values, types and options, and all scripts of the
 * library, for one lock and for several, with arguments of the library and others.
 * @param random numbers from 0 to below 1
 * @param us the time of the server when the step runs
 */
export function randomStep(random: () => number, us: number): Step {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const many = <T>(make: () => T): T[] => Array.from({ length: pick([1, 1, 1, 2, 3]) }, make);

  const key = () => pick(KEYS);
  const lock = () => pick(LOCKS);
  const ttl = () => (random() < 0.9 ? pick(TTLS) : pick(['0', '-1', 'x', '', '1.5']));
  /** Not one of the shortest, after which the two servers would differ. */
  const ttlOfMany = () => (random() < 0.9 ? pick(TTLS) : pick(['x', '']));
  const owner = () => pick(OWNERS);
  /** How many calls wait. */
  const count = () => pick(['0', '1', '3', '1500000']);
  const token = () => (random() < 0.9 ? String(us + Math.floor((random() - 0.5) * 4e6)) : pick(HOSTILE_NUMBERS));
  /** The holders that share a lock, some of them until recently. */
  const end = () => String(Math.floor(us / 1_000) + pick([-120_000, -500, -1, 600_000, 700_000]));
  const crowd = () => {
    const [head, permits, limit] = pick([
      ['~p', pick(['1', '2']), pick(['2', '3', '5'])],
      [`~s@${String(us - 1_000)}`, '1', '0'],
      [`~s@12`, '1', '0'],
      ['~x', '1', pick(['1', ''])],
    ]);
    return [head, ...many(() => [end(), permits, limit, pick(CROWD_OWNERS)]).flat()].join(' ');
  };
  const kind = () => pick<string[]>([['s', '1', '0'], ['p', pick(['1', '2']), pick(['2', '3', '5'])]]); // prettier-ignore
  const value = () =>
    pick([
      () => `${owner()}@${token()}${pick(['', '+', '='])}`,
      () => token(),
      crowd,
      crowd,
      () => pick(['no number', '', '@', 'x@12', `x@${'9'.repeat(16)}+`, `${us}.5`, '\0\r\n', ...HOSTILE_NUMBERS]),
    ])();
  const score = () =>
    pick([String(us), String(-us), String(us + 1), '0', '1.5', '-3', '+inf', '-inf', 'abc', '1e3', '']);
  const entry = (by = owner()) =>
    pick([
      `g ${CHANNEL} ${by}`,
      `w ${CHANNEL} ${by}`,
      `g nobody ${by}`,
      `s ${CHANNEL} ${by}`,
      `p1/3 ${CHANNEL} ${by}`,
      pick([`p2/2 nobody ${by}`, `p3/2 ${CHANNEL} ${by}`, `p0/2 ${CHANNEL} ${by}`, `s nobody ${by}`]),
      `h ${CHANNEL}`,
      'z of a later version',
      'g',
      '',
    ]);
  const sign = () => pick([`h ${CHANNEL}`, `u ${CHANNEL}`, `d ${CHANNEL}`]);
  const rank = () => pick(['0', '1', '5', '-1', '-2', '-9', 'x', '1.0']);
  const bound = () => pick(['-inf', '+inf', '(0', '0', `(${score()}`, score()]);

  const commands: readonly (() => string[])[] = [
    () => ['SET', key(), value(), ...pick(OPTIONS_OF_SET)],
    () => ['GET', key()],
    () => ['INCR', key()],
    () => ['DEL', ...many(key)],
    () => ['TYPE', key()],
    () => ['PTTL', key()],
    () => ['PEXPIRE', key(), ttl()],
    () => ['PEXPIREAT', key(), pick([LONG_AGO_MS, '0', '-1', 'x'])],
    () => ['PERSIST', key()],
    () => [
      'ZADD',
      key(),
      ...pick([[], ['NX'], ['XX'], ['NX', 'XX']]),
      ...many(() => [score(), pick([entry(), sign()])]).flat(),
    ],
    () => ['ZREM', key(), ...many(entry)],
    () => ['ZREMRANGEBYSCORE', key(), bound(), bound()],
    () => ['ZMSCORE', key(), ...many(entry)],
    () => ['ZRANGE', key(), rank(), rank(), ...pick([[], ['WITHSCORES'], ['LIMIT', '0', '1'], ['BYSCORE']])],
    () => ['ZRANGE', key(), bound(), bound(), 'BYSCORE', ...pick([[], ['LIMIT', rank(), rank()], ['LIMIT', '0']])],
    () => ['PUBLISH', pick([CHANNEL, 'nobody']), value()],
    () => ['PUBSUB', pick(['NUMSUB', 'SHARDNUMSUB']), CHANNEL, 'nobody'],
    () => [pick(['GET', 'SET', 'ZADD', 'ZRANGE', 'PEXPIRE', 'ZMSCORE', 'EVAL', 'NONSENSE']), key()],
    () => [
      'SCAN',
      '0',
      'COUNT',
      pick(['1000', '1000', '1000', '0', 'x']),
      ...pick([[], ['MATCH', 'lock:{[ab]}*'], ['MATCH', '*\\{c*'], ['TYPE', 'zset']]),
    ],
    () => ['DEBUG', 'POPULATE', pick(['0', '2', '3', '-1', 'x']), 'lock', ...pick([[], ['0'], ['3'], ['20'], ['-1']])],
    () => ['FLUSHALL'],
    () => ['CONFIG', 'SET', 'maxmemory', pick(['0', '0', '1'])], // full, or not
    () => ['CONFIG', pick(['GET', 'SET', 'NONSENSE']), pick(['maxmemory-policy', 'nonsense'])],
    () => ['CONFIG', 'SET', 'nonsense', '1'],
  ];

  const ownerWith = () => `${owner()}@`;
  const withQueue = (name: string) => [lockOf(name), queueOf(name)];
  /** A call of a script for some locks: the keys and arguments that they share, then those of each. */
  const call = ([sharedKeys, keysOf]: Part, [sharedArgs, argsOf]: Part, names = many(lock)) =>
    [
      [...sharedKeys, ...names.flatMap(keysOf)],
      [...sharedArgs, ...names.flatMap(argsOf)],
    ] as const;
  const ofFence = (of: Part[1]): Part => [['lock:fence'], of];
  const ofOwner = () => [ownerWith()];
  const inTurn = () => {
    const by = owner();
    return [
      pick(['', ownerWith()]),
      `${by}@`,
      ttl(),
      pick(['1', '5']),
      pick(['', entry(by)]),
      pick(['', '0', '17', String(us - 5), String(us + 5)]),
      pick(['0', '1']),
      count(),
    ];
  };
  const together = () => {
    const by = pick(['', 'x/1', ...CROWD_OWNERS]);
    const [letter = '', permits = '', limit = ''] = kind();
    const place = `${letter === 's' ? 's' : `p${permits}/${limit}`} ${CHANNEL} ${by}`;
    return [
      by === '' ? pick(CROWD_OWNERS) : pick(['', pick(CROWD_OWNERS)]),
      by,
      ttlOfMany(),
      letter,
      permits,
      limit,
      by === '' ? '' : pick(['', place, place, entry(by)]),
      pick(['', '0', '17', String(us - 5), String(us + 5)]),
      pick(['0', '1']),
      count(),
      by === '' ? '' : pick(['', '', 'x/5', 'x/5 x/6 x/7']),
    ];
  };
  const withdrawn = (by = owner()) => [`${by}@`, entry(by)];
  const voter = () => pick(['', String(FIRST_US)]);

  const calls: Readonly<Record<Name, () => readonly [keys: readonly string[], args: readonly string[]]>> = {
    ACQUIRE: () =>
      call(
        ofFence((name) => [lockOf(name)]),
        [[ttl()], ofOwner],
      ),
    ACQUIRE_IN_ORDER: () => call(ofFence(withQueue), [[ttl()], ofOwner]),
    ACQUIRE_TOGETHER: () => call(ofFence(withQueue), [[pick(['h', 'u', 'd'])], together]),
    ADMIT: () => [['lock:admission'], [pick(['run1', 'run2']), pick(['0', '100']), pick(['30000', '60000'])]],
    TURN: () => call(ofFence(withQueue), [[pick(['h', 'u', 'd'])], inTurn]),
    DOWNGRADE: () => call(ofFence(withQueue), [[], () => [ownerWith(), pick(CROWD_OWNERS), ttlOfMany()]]),
    EXTEND: () => call([[], (name) => [lockOf(name)]], [[ttl()], ofOwner]),
    EXTEND_AND_REPORT: () =>
      call([[], (name) => [lockOf(name), callsOf(name)]], [[ttl()], () => [ownerWith(), count(), ttl()]]),
    EXTEND_TOGETHER: () => call([[], (name) => [lockOf(name)]], [[ttlOfMany()], () => [pick(CROWD_OWNERS)]]),
    FORCE_RELEASE: () => call(ofFence(withQueue), [[CHANNEL], (name) => [name, pick(['', owner()])]]),
    INSPECT: () => call([[], (name) => [...withQueue(name), callsOf(name)]], [[], () => []]),
    KEEP: () => call([[], (name) => [lockOf(name)]], [[ttl()], ofOwner], [lock()]),
    RAISE_FENCE: () => call([[], (name) => [lockOf(name), 'lock:fence']], [[], () => [ownerWith(), token()]], [lock()]),
    RELEASE: () => call(ofFence(withQueue), [[], ofOwner]),
    RESTORE: () => call([[], (name) => [lockOf(name)]], [[ttl()], () => [ownerWith(), token()]]),
    TRANSFER: () =>
      call(
        ofFence((name) => [lockOf(name)]),
        [[], () => [ownerWith(), ownerWith(), ttl(), pick(['0', '1']), pick(['0', '1'])]],
      ),
    VOTE: () =>
      call(
        [['lock:admission'], (name) => [lockOf(name), 'lock:fence']],
        [[voter(), ttl()], () => [`${ownerWith()}${token()}`]],
      ),
    VOTE_OR_QUEUE: () =>
      call(
        [['lock:admission'], (name) => [lockOf(name), 'lock:fence', queueOf(name)]],
        [[voter(), ttl()], () => [`${ownerWith()}${token()}`, pick(['', entry()]), pick(['', '0']), count()]],
      ),
    WITHDRAW: () => call(ofFence(withQueue), [[], () => withdrawn()]),
  };

  if (random() < 0.35) {
    const args = pick(commands)();
    return { title: args.join(' '), args };
  }
  const name = pick(Object.keys(calls) as Name[]);
  const [keys, args] = calls[name]();
  return {
    title: `${name} ${keys.join(' ')} | ${args.join(' ')}`,
    args: ['EVAL', sources[name], String(keys.length), ...keys, ...args],
  };
}

const HOSTILE_NUMBERS = [
  '9223372036854775807',
  '9223372036854775808',
  '8000000000000000',
  '9007199254740993',
  '9'.repeat(16),
  '12',
  '-5',
  'nan',
  'inf',
  '0x10',
  '1e3',
  '',
];
const OPTIONS_OF_SET: readonly (readonly string[])[] = [
  [],
  ['PX', '600000'],
  ['px', '600000', 'nx'],
  ['NX'],
  ['XX'],
  ['GET'],
  ['KEEPTTL'],
  ['NX', 'XX'],
  ['PX'],
  ['PX', '0'],
  ['PX', 'z'],
  ['PX', '600000', 'KEEPTTL'],
  ['PX', '600000', 'GET', 'NX'],
  ['PXAT', LONG_AGO_MS],
  ['PXAT', '0'],
  ['PXAT', LONG_AGO_MS, 'PX', '600000'],
  ['KEEPTTL', 'PXAT', LONG_AGO_MS],
  ['NONSENSE'],
];
