import type { ServerResponse } from 'node:http';
import {
  Catch,
  Controller,
  Get,
  Post,
  Res,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type Type,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import {
  LockContendedError,
  LockedInterceptor,
  LockError,
  LockExceptionFilter,
  LockGraphQLExceptionFilter,
  LockHttpExceptionFilter,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockRpcExceptionFilter,
  LockService,
  LockUnavailableError,
  LockWsExceptionFilter,
  Locked,
  StaleTokenError,
  type LockErrorAnswer,
} from 'nest-redis-lock';
import { lastValueFrom } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { HTTP_ADAPTERS, makeApp, post, sharedApp, startApp } from '../support/nest-app.js';
import { ordersOf, TRANSPORTS, type Transport } from './transports.js';

interface Filtered {
  transport: Transport;
  filter: Type;
  /** The parts of the response around the answer. */
  around: (answer: object, what: string) => unknown;
}

const OF: Record<string, Omit<Filtered, 'transport'>> = {
  http: { filter: LockHttpExceptionFilter, around: (answer) => answer },
  rpc: { filter: LockRpcExceptionFilter, around: (answer) => ({ status: 'error', ...answer }) },
  ws: {
    filter: LockWsExceptionFilter,
    around: (answer, what) => ({
      event: 'exception',
      data: { status: 'error', ...answer, cause: { pattern: what, data: { mine: 1 } } },
    }),
  },
  graphql: {
    filter: LockGraphQLExceptionFilter,
    around: ({ message, ...extensions }: { message?: string }, what) => [
      { message, path: [what], locations: expect.anything(), extensions },
    ],
  },
};

const FILTERED = TRANSPORTS.map((transport): Filtered => ({ transport, ...OF[transport.type]! }));

const BUSY: LockErrorAnswer = {
  statusCode: 409,
  code: 'LOCK_CONTENDED',
  message: 'The resource is in use at the moment: try again later.',
  retryAfterMs: expect.any(Number),
};
const DOWN: LockErrorAnswer = {
  statusCode: 503,
  code: 'LOCK_UNAVAILABLE',
  message: 'The service is not available at the moment: try again later.',
};
const LOST: LockErrorAnswer = {
  statusCode: 503,
  code: 'LOCK_LOST',
  message: 'The work was interrupted: check its outcome before you try again.',
};
const badKey = (field: string): LockErrorAnswer => ({
  statusCode: 400,
  code: 'LOCK_KEY',
  message: `${field} is missing, or cannot be used.`,
  field,
});

describe.each(FILTERED)('clients of $transport.name', ({ transport, filter, around }) => {
  it.each([
    ['the filter of the transport', filter],
    ['the filter for all', LockExceptionFilter],
  ])(
    'clients of %s see whether a lock is busy, lost or unavailable, or their request has no key, and nothing else [G198]',
    async (_what, by) => {
      const { ask, locks, log } = await transport.open(ordersOf(transport), { memory: true }, by);
      const held = await locks.acquire('secret-key');
      const busy = await ask('busy', { mine: 1 });
      expect(busy).toEqual(around(BUSY, 'busy'));
      await held.release();
      const keyed = await ask('keyed', { mine: 1 });
      expect(keyed).toEqual(around(badKey(`${transport.part}.id`), 'keyed'));
      const nowhere = { redis: 'redis://127.0.0.1:1', lazyConnect: true, commandTimeoutMs: 20 };
      const without = await transport.open(ordersOf(transport), nowhere, by);
      const down = await without.ask('busy', { mine: 1 });
      expect(down).toEqual(around(DOWN, 'busy'));
      const seen = JSON.stringify([busy, keyed, down]);
      for (const secret of ['secret', held.owner, process.pid, '127.0.0.1']) expect(seen).not.toContain(String(secret));
      const logs = [log, without.log];
      expect(logs.flatMap(({ lines }) => lines).filter((line) => line.startsWith('error'))).toEqual([]);
      const named = /Lock "secret-key"|the key "order/;
      expect(logs.flatMap(({ debugged }) => debugged.map((line) => named.exec(line)?.[0]))).toHaveLength(3);
      expect(await ask('loses', { mine: 1 })).toEqual(around(LOST, 'loses')); // and not the result
    },
  );
});

@Catch(RangeError)
class ForOthers {
  catch(): void {}
}

it('GraphQL clients see the code of a lock error without a filter [G199]', async () => {
  const transport = TRANSPORTS.at(-1)!;
  const { ask, locks } = await transport.open(ordersOf(transport), { memory: true }, ForOthers);
  await using _held = await locks.acquire('secret-key');
  expect(await ask('busy', { mine: 1 })).toMatchObject([{ extensions: { code: 'LOCK_CONTENDED' } }]);
});

it('a client of Socket.IO gets an event', () => {
  const emitted: unknown[] = [];
  const client = { emit: (...parts: unknown[]) => emitted.push(parts) };
  const host = { switchToWs: () => ({ getClient: () => client, getPattern: () => 'pay', getData: () => 7 }) };
  new LockWsExceptionFilter().catch(new LockContendedError('k', 0), host as unknown as ArgumentsHost);
  const { retryAfterMs: _, ...answer } = BUSY;
  expect(emitted).toEqual([['exception', { status: 'error', ...answer, cause: { pattern: 'pay', data: 7 } }]]);
});

it('a user whose lock has expired gets a 409 with a message that fits [G1034]', async () => {
  @Controller()
  class Editing {
    constructor(private readonly locks: LockService) {}

    @Get()
    async goOn(): Promise<void> {
      const parcel = await (await this.locks.acquire('document:1')).detach({ ttlMs: 60_000 });
      await this.locks.forceRelease(parcel.key);
      await this.locks.extend(parcel, { ttlMs: 60_000 });
    }
  }
  const { url } = await startApp({
    controllers: [Editing],
    providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
  });
  const response = await fetch(url);
  expect(response.status).toBe(409);
  expect(await response.json()).toEqual({
    statusCode: 409,
    code: 'LOCK_LOST',
    message: 'The resource is no longer locked for you: read it again before you go on.',
  });
});

describe.each(HTTP_ADAPTERS)('a filter that was created with new, on %s,', (_name, makeAdapter) => {
  let remainingMs: number;

  @Controller()
  class Busy {
    @Get('local')
    @UseFilters(new LockHttpExceptionFilter())
    async local(): Promise<never> {
      throw new LockContendedError('k', 0, { remainingMs });
    }

    @Get('global')
    async global(): Promise<never> {
      throw new LockContendedError('k', 0, { remainingMs });
    }
  }

  it('answers as one that Nest has made, for a handler or for all', async () => {
    const { url } = await startApp(
      { controllers: [Busy] },
      undefined,
      (app) => app.useGlobalFilters(new LockExceptionFilter()),
      makeAdapter(),
    );
    for (const path of ['local', 'global']) {
      remainingMs = 1_001;
      const response = await fetch(`${url}/${path}`);
      expect([response.status, response.headers.get('retry-after')]).toEqual([409, '2']);
      expect(await response.json()).toEqual({ ...BUSY, retryAfterMs: 1_001 });
      remainingMs = Infinity; // its lease does not expire
      const unknown = await fetch(`${url}/${path}`);
      expect([unknown.headers.get('retry-after'), await unknown.json()]).toEqual([
        null,
        { ...BUSY, retryAfterMs: undefined },
      ]);
    }
  });
});

describe.each(HTTP_ADAPTERS)('Retry-After on %s', (name, makeAdapter) => {
  @Controller()
  class Throws {
    @Get('begun')
    @UseInterceptors(LockedInterceptor)
    async begun(@Res({ passthrough: true }) response: { raw?: ServerResponse } & ServerResponse): Promise<never> {
      (response.raw ?? response).write('begun');
      throw new LockContendedError('k', 0, { remainingMs: 1_000 });
    }

    @Post('request')
    @Locked('order:{body.id}', { waitMs: 0 })
    async ofRequest(): Promise<void> {}
  }

  const test = sharedApp({ controllers: [Throws] }, undefined, undefined, makeAdapter());

  // Nest 11 on Fastify answers once more, and Node.js refuses that.
  const onlyOn = name === 'Fastify' ? ' [Nest 12]' : '';

  it(`Retry-After is not set when the answer has begun${onlyOn}`, async () => {
    const response = await fetch(`${test.url}/begun`);
    expect([await response.text(), response.headers.get('retry-after')]).toEqual(['begun', null]);
    expect(test.log.lines).toEqual([expect.stringMatching(/^error LockContendedError/)]);
  });

  it('Retry-After is set where a lock is refused, in addition to the plain answer of Nest [G200]', async () => {
    await using _held = await test.locks.acquire('order:1', { ttlMs: 3_600_000 });
    const response = await post(`${test.url}/request`, { id: 1 });
    expect(response.status).toBe(409);
    const seconds = Number(response.headers.get('retry-after'));
    expect(seconds > 3_000 && seconds <= 3_600, String(seconds)).toBe(true);
    expect(await response.json()).toEqual({ statusCode: 409, message: 'Conflict' });
  });
});

it('the filter for all leaves an error to the caller of a transport that it does not know', () => {
  const error = new LockContendedError('k', 0);
  const host = { getType: () => 'terminal' } as unknown as ArgumentsHost;
  expect(() => new LockExceptionFilter().catch(error, host)).toThrow(error);
});

describe('what the filters log', () => {
  it.each<[LockError, 'debug' | 'warn' | 'error']>([
    [new LockContendedError('k', 0), 'debug'],
    [LockUnavailableError.from('acquired', 'k', []), 'debug'],
    [new LockKeyError('of a request', 400, { field: 'body.id' }), 'debug'],
    [new LockKeyError('of a route', 400, { field: 'params.idd' }), 'debug'],
    [new LockKeyError('of a guard', 400, { field: 'user.id' }), 'debug'],
    [new LockLostError('k', 'expired'), 'warn'],
    [new StaleTokenError(1), 'warn'],
    [new LockKeyError('of arguments'), 'error'],
    [new LockOptionsError('wrong'), 'error'],
  ])('of %s is of the level %s', async (error, level) => {
    const { log } = await makeApp({});
    log.lines.length = 0;
    await expect(lastValueFrom(new LockRpcExceptionFilter().catch(error))).rejects.toMatchObject({ code: error.code });
    const debugged = log.debugged.map((line) => `debug ${line}`);
    expect([...log.lines, ...debugged]).toEqual([expect.stringMatching(new RegExp(`^${level} .*`, 's'))]);
  });
});
