import { expect, it, onTestFinished, vi } from 'vitest';
import { NodeError, LockOptionsError, LockUnavailableError } from 'nest-redis-lock';
import {
  type AcquireAnswer,
  type AcquireRequest,
  fromPromises,
  type LockBackend,
  type PromiseBackend,
} from 'nest-redis-lock/testing';
import { acquireOn, claimOn, extendOn, now, releaseOn, transferOn } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';

/** A toy backend with some methods replaced. Once closed, it does not retry releases while later tests count timers. */
function broken(methods: Partial<PromiseBackend>, limitMs = 20): LockBackend {
  const toy = new ToyBackend(now);
  const backend = fromPromises(Object.assign(toy, { attemptTimeoutMs: () => limitMs }, methods), now, limitMs);
  onTestFinished(() => backend.close());
  return backend;
}

const reject = () => Promise.reject(new Error('the disk is full'));
const throwAtOnce = () => {
  throw new Error('the disk is full');
};
const hang = () => new Promise<never>(() => {});
const UNAVAILABLE: AcquireAnswer = { status: 'unavailable', causes: [new NodeError('toy', 'the disk is full')] };
const FAILURES: [what: string, fails: () => Promise<never>, problem: string][] = [
  ['rejects', reject, 'the disk is full'],
  ['throws', throwAtOnce, 'the disk is full'],
  ['never settles', hang, 'no answer within 20 ms'],
];

it('a backend of promises that forgets to answer is unavailable, and the operation is named', async () => {
  const silent = () => Promise.resolve(undefined as never);
  const backend = broken({ acquire: silent, extend: silent, release: silent, transfer: silent, list: silent });
  const because = (operation: string) => ({
    status: 'unavailable',
    causes: [{ node: 'toy', problem: `${operation}() must answer with an object that has a status: got undefined` }],
  });
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject(because('acquire'));
  expect(await extendOn(backend, claimOn('key'))).toMatchObject(because('extend'));
  expect(await releaseOn(backend, claimOn('key'))).toMatchObject(because('release'));
  expect(await transferOn(backend, claimOn('key'), claimOn('key'), { mints: true })).toMatchObject(because('transfer'));
  await expect(backend.list({ match: '*', limit: 1, budgetMs: 10 })).rejects.toThrow(
    'list() must answer with an object',
  );
});

const GRANT = { key: 'key', owner: 'me' };

it.each<[operation: string, answer: object, problem: string]>([
  ['acquire', { status: 'refused' }, "must answer with the status acquired or contended or unavailable: got 'refused'"],
  ['extend', { status: 'acquired' }, "must answer with the status extended or lost or unavailable: got 'acquired'"],
  ['release', { status: 'ok' }, "must answer with the status released or gone or unavailable: got 'ok'"],
  ['transfer', { status: 'gone' }, "must answer with the status transferred or lost or unavailable: got 'gone'"],
  ['acquire', { status: 'acquired', grant: true }, "must answer with a grant when its status is 'acquired': got true"],
  ['transfer', { status: 'transferred', grant: 'key' }, "must answer with a grant when its status is 'transferred'"],
  [
    'acquire',
    { status: 'acquired', grant: GRANT, others: 5 },
    "with others that are an array of grants when its status is 'acquired': got 5",
  ],
  [
    'acquire',
    { status: 'acquired', grant: GRANT, others: [5] },
    "with others that are an array of grants when its status is 'acquired': got [ 5 ]",
  ],
  [
    'acquire',
    { status: 'acquired', grant: GRANT, others: [{ ...GRANT, lastToken: '2' }] },
    'with others that are an array of grants when its status is',
  ],
  ...[['acquire', 'acquired'] as const, ['transfer', 'transferred'] as const].flatMap(([operation, status]) => {
    const when = `when its status is '${status}': got`;
    const rows: [grant: object, problem: string][] = [
      [{ owner: 'me' }, 'must answer with a grant with a key that is a string when'],
      [{ key: 'key', owner: 5 }, `with an owner that is a string ${when} 5`],
      [{ ...GRANT, fencingToken: '2' }, `or undefined, ${when} '2'`],
      [{ ...GRANT, fencingToken: 2n }, `or undefined, ${when} 2n`],
      [{ ...GRANT, fencingToken: 1, lastToken: 2 ** 53 }, 'a lastToken that is a safe integer'],
    ];
    return rows.map(([grant, problem]): [string, object, string] => [operation, { status, grant }, problem]);
  }),
  [
    'acquire',
    { status: 'contended', owner: 5 },
    "must answer with an owner that is a string when its status is 'contended'",
  ],
  ['acquire', { status: 'contended', owner: null }, 'must answer with an owner that is a string when its status is'],
  [
    'acquire',
    { status: 'contended', remainingMs: '5' },
    'must answer with remainingMs that is a number when its status is',
  ],
  ['acquire', { status: 'contended', remainingMs: Number.NaN }, "when its status is 'contended': got NaN"],
  ['extend', { status: 'lost' }, "the reason 'expired' or 'stolen' when its status is 'lost': got undefined"],
  [
    'transfer',
    { status: 'lost', reason: 'gone' },
    "the reason 'expired' or 'stolen' when its status is 'lost': got 'gone'",
  ],
  [
    'transfer',
    { status: 'unavailable', causes: [new NodeError('toy', 'the disk is full')] },
    "must answer with mayHaveRun that is a boolean when its status is 'unavailable': got undefined",
  ],
  ...['acquire', 'extend', 'release', 'transfer'].flatMap((operation): [string, object, string][] => [
    [operation, { status: 'unavailable' }, 'must answer with causes that are an array of errors when its status is'],
    [operation, { status: 'unavailable', causes: [null] }, 'must answer with causes that are an array of errors when'],
    [operation, { status: 'unavailable', causes: [] }, "when its status is 'unavailable': got []"],
  ]),
])(
  'the answer of %s of a backend of promises counts as none if it is %o, and the error says why [G1101]',
  async (name, answer, problem) => {
    const backend = broken({ [name]: async () => answer });
    const run = { acquire: acquireOn, extend: extendOn, release: releaseOn }[name];
    const outcome = run
      ? run(backend, claimOn('key'))
      : transferOn(backend, claimOn('key'), claimOn('key'), { mints: true });
    const cause = { node: 'toy', problem: expect.stringContaining(`${name}() `) };
    expect(await outcome).toMatchObject({ status: 'unavailable', causes: [cause] });
    expect(((await outcome) as { causes: NodeError[] }).causes[0]!.problem).toContain(problem);
  },
);

it('a lease of a backend of promises begins before its method is called', async () => {
  let calledAt = Infinity;
  const toy = new ToyBackend(now, 10);
  const acquire = (request: AcquireRequest) => {
    calledAt = now();
    return toy.acquire(request);
  };
  const outcome = await acquireOn(broken({ acquire }, 1_000), claimOn('key'));
  expect((outcome as { sentAt: number }).sentAt).toBeLessThanOrEqual(calledAt);
});

it.each<[string, (gate: Gate) => Promise<void | AcquireAnswer>]>([
  ['rejects after it ran', reject],
  ['answers too late', (gate) => gate.opened],
  ['answers that the store is unavailable, after it ran', async () => UNAVAILABLE],
])('a lock is given back when the attempt of a backend of promises %s [G1141]', async (_what, after) => {
  const { acquire } = ToyBackend.prototype;
  const toy = new ToyBackend(now);
  const givenUp = new Gate();
  toy.attemptTimeoutMs = () => 20;
  toy.acquire = (async (request) => {
    const outcome = await acquire.call(toy, request);
    return (await after(givenUp)) ?? outcome;
  }) as typeof acquire;
  const backend = fromPromises(toy, now);
  expect(await acquireOn(backend, claimOn('key', 3_600_000))).toMatchObject({ status: 'unavailable' });
  givenUp.open();
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
});

it('a lock is given back when the attempt of a backend of promises has an effect after its time limit, and then rejects', async () => {
  const toy = new ToyBackend(now);
  const { acquire, release } = toy;
  const [late, hasRun] = [new Gate(), new Gate()];
  let releases = 0;
  toy.attemptTimeoutMs = () => 20;
  toy.acquire = async (request) => {
    await late.opened;
    await acquire.call(toy, request);
    hasRun.open();
    return reject();
  };
  toy.release = (...args) => (releases++, release.apply(toy, args));
  const backend = fromPromises(toy, now);
  expect(await acquireOn(backend, claimOn('key', 3_600_000))).toMatchObject({ status: 'unavailable' });
  await until(() => releases > 0, { what: 'the attempt is undone' });
  late.open();
  await hasRun.opened;
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
});

it('the service knows what else a backend of promises can do, or not: it polls together, sends later, guards, and says why it has no modes and no transfers', () => {
  const statement = { dialect: 'testing', text: 'toy', values: [] };
  const guard = vi.fn<NonNullable<LockBackend['guard']>>(() => statement);
  const others = { pollEveryMs: 25, sendsLater: true, whyOnlyExclusive: 'The disk is small.' };
  const backend = broken({ ...others, guard, transfer: undefined });
  const whyNoTransfer = 'The store "toy" cannot change the holder of a lock.';
  expect(backend).toMatchObject({ ...others, whyNoTransfer });
  expect(backend.guard!([claimOn('key')], 7)).toBe(statement);
  expect(guard).toHaveBeenCalledWith([expect.objectContaining({ key: 'key' })], 7);
  expect(broken({}).guard).toBeUndefined();
});

it('a backend of promises that is closed, also twice, closes its store when the releases in flight have been answered, and those that failed were tried again', async () => {
  const [slow, failing] = [new Gate(), new Gate()];
  const log: string[] = [];
  const backend = broken(
    {
      release: async ({ key }) => {
        const isFirst = !log.includes(key);
        log.push(key);
        if (key === 'slow') await slow.opened;
        else if (isFirst) await failing.opened.then(reject);
        return { status: 'released' };
      },
      close: async () => void log.push('closed'),
    },
    10_000,
  );
  const released = Promise.all([releaseOn(backend, claimOn('slow')), releaseOn(backend, claimOn('failing'))]);
  const closings = [backend.close(), backend.close()];
  failing.open();
  slow.open();
  await Promise.all([released, ...closings]);
  expect(log).toEqual(['slow', 'failing', 'failing', 'closed', 'closed']);
});

it('2 000 locks that are released in an outage of a backend of promises cost one timer and few commands, and are free once it answers [G644]', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let isDown = true;
  let commands = 0;
  const released = new Set<string>();
  const backend = broken(
    {
      release: ({ key }) => {
        commands++;
        if (isDown) return reject();
        released.add(key);
        return Promise.resolve({ status: 'released' });
      },
    },
    1_000,
  );
  const claims = Array.from({ length: 2_000 }, (_, index) => claimOn(`key ${index}`));
  const outcomes = await Promise.all(claims.map((claim) => releaseOn(backend, claim)));
  expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['unavailable']));
  expect(commands).toBe(claims.length);
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect((commands - claims.length) / 60).toBeLessThan(50);
  expect(vi.getTimerCount()).toBe(1);
  isDown = false;
  await vi.advanceTimersByTimeAsync(4_000);
  expect(released.size).toBe(claims.length);
  expect(vi.getTimerCount()).toBe(0);
});

it.each(FAILURES)(
  'inspecting a lock whose backend of promises %s is refused, and the report says so',
  async (_what, fails, problem) => {
    const backend = broken({ inspect: fails, forceRelease: fails, report: fails });
    const unavailable = expect.objectContaining({
      code: 'LOCK_UNAVAILABLE',
      causes: [expect.objectContaining({ node: 'toy', problem })],
    });
    await expect(backend.inspect('key')).rejects.toEqual(unavailable);
    await expect(backend.forceRelease('key')).rejects.toEqual(unavailable);
    for (const each of [backend, broken({ inspect: fails, report: undefined }, 10_000)]) {
      const { findings, nodes } = await each.report(20);
      expect(findings).toEqual([expect.objectContaining({ message: `toy could not be checked: ${problem}.` })]);
      expect(nodes).toMatchObject([{ name: 'toy', reachable: false, problem }]);
    }
  },
);

it.each<[operation: string, answer: unknown, ask: (backend: LockBackend) => Promise<unknown>]>([
  ['connect', undefined, (backend) => backend.connect(100).then(() => expect.unreachable(), String)],
  ['inspect', { holders: [] }, (backend) => backend.inspect('key').then(() => expect.unreachable(), String)],
  ['inspect', null, (backend) => backend.inspect('key').then(() => expect.unreachable(), String)],
  ['forceRelease', true, (backend) => backend.forceRelease('key').then(() => expect.unreachable(), String)],
  ['ping', undefined, async (backend) => (await backend.ping()).problems.join()],
  ['report', {}, async (backend) => (await backend.report(100)).findings.map(({ message }) => message).join()],
])(
  'the error about an answer of %s of a backend of promises in another form names the operation: %o',
  async (operation, answer, ask) => {
    const backend = broken({ [operation]: () => Promise.resolve(answer) });
    expect(await ask(backend)).toContain(`${operation}() must answer with `);
  },
);

it('a mistake in the code of a backend of promises does not look like an outage, and keeps its stack [G1063]', async () => {
  const mistake = new TypeError('no is not a function');
  const outage = new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') });
  const causes = [];
  for (const error of [mistake, outage]) {
    const outcome = await releaseOn(broken({ release: () => Promise.reject(error) }), claimOn('key'));
    causes.push((outcome as { causes: NodeError[] }).causes[0]);
  }
  expect(causes).toMatchObject([
    { problem: 'no is not a function', advice: expect.stringContaining('mistake in the code of the store') as string },
    { problem: 'fetch failed', advice: undefined },
  ]);
  expect(causes.map((each) => each!.cause)).toEqual([mistake, outage]);
});

it('an application does not start before a backend of promises has answered [G1064]', async () => {
  let asked = 0;
  const inspect = async () => (++asked < 3 ? reject() : undefined);
  expect(await broken({ inspect }).connect(10_000)).toEqual([]);
  expect(asked).toBe(3);
  await expect(broken({ inspect: hang }).connect(100)).rejects.toThrow(LockUnavailableError);
  await expect(broken({ connect: hang }).connect(100)).rejects.toThrow('The store cannot be reached (waited 100 ms)');
  const refusal = new LockOptionsError('It has no such bucket.');
  await expect(broken({ connect: () => Promise.reject(refusal) }).connect(100)).rejects.toBe(refusal);
});
