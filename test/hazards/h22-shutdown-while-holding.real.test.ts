import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { Controller, Get, Inject, Injectable, Module, type OnModuleDestroy } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Locked } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { tryLock, unlock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';

/** On its own connection, which does not delay the closing server. */
function get(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = request(url, { agent: false }, (response) =>
      text(response).then((body) => resolve(`${response.statusCode} ${body}`), reject),
    );
    call.on('error', reject).end();
  });
}

describe('H22: the application closes while a handler holds a lock', () => {
  it('a naive lock whose connection closes with the application cannot be released, and the result of the handler is lost', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const [began, finish] = [new Gate(), new Gate()];

    @Injectable()
    class NaiveLocks implements OnModuleDestroy {
      async withLock<T>(work: () => Promise<T>): Promise<T> {
        if (!(await tryLock(redis, 'lock', 'A', 60_000))) throw new Error('taken');
        try {
          return await work();
        } finally {
          await unlock(redis, 'lock', 'A');
        }
      }

      async onModuleDestroy(): Promise<void> {
        await redis.quit();
      }
    }

    @Controller()
    class Payments {
      constructor(@Inject(NaiveLocks) private readonly locks: NaiveLocks) {}

      @Get('pay')
      pay(): Promise<string> {
        return this.locks.withLock(async () => {
          began.open();
          await finish.opened;
          return 'paid';
        });
      }
    }

    @Module({ controllers: [Payments], providers: [NaiveLocks] })
    class App {}

    const app = await NestFactory.create(App, { logger: false });
    await app.listen(0, '127.0.0.1');
    const answer = get(`${await app.getUrl()}/pay`);
    await began.opened;
    const closing = app.close();
    await until(() => redis.status === 'end', { what: 'the connection is closed' });
    finish.open();
    expect(await answer).toMatch(/^500 /);
    await closing;
    expect(await server.command('GET', 'lock')).toBe('A'); // for the rest of a minute
  });

  it('this library lets the handler finish, delivers its result, and releases the lock before it disconnects [G175]', async () => {
    const server = await redisServer();
    const [began, finish] = [new Gate(), new Gate()];

    @Controller()
    class Payments {
      @Get('pay')
      @Locked('key')
      async pay(): Promise<string> {
        began.open();
        await finish.opened;
        return 'paid';
      }
    }

    const { app, url, events } = await startApp({ controllers: [Payments] }, { redis: server.url, ttlMs: 9_000 });
    const answer = get(`${url}/pay`);
    await began.opened;
    const closing = app.close();
    await until(() => events.some(({ type }) => type === 'closing'), { what: 'it waits for the handler' });
    const ttl = async () => Number(await server.command('PTTL', 'lock:{key}'));
    await server.command('PEXPIRE', 'lock:{key}', 60_000);
    await until(async () => (await ttl()) <= 9_000, { what: 'the lock is still extended' });
    finish.open();
    expect(await answer).toBe('200 paid');
    await closing;
    expect(events.map(({ type }) => type)).toEqual(['acquired', 'closing', 'released']);
    expect(await server.keys('lock:{key}')).toEqual([]);
  });
});
