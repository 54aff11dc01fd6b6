import { request } from 'node:http';
import { Controller, Get, Sse } from '@nestjs/common';
import { Locked } from 'nest-redis-lock';
import { Observable, Subject } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { HTTP_ADAPTERS, sharedApp, type TestApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

/** The gates of the handlers, and their log. */
let gate: Gate;
let ticks: Subject<string>;
let done: string[];
beforeEach(() => {
  gate = new Gate();
  ticks = new Subject();
  done = [];
});

@Controller()
class Handlers {
  @Get('slow')
  @Locked('x')
  async slow(): Promise<string> {
    done.push('began');
    await gate.opened;
    done.push('ended');
    return 'slow';
  }

  @Sse('sse')
  @Locked('x')
  sse(): Observable<string> {
    return this.stream();
  }

  @Sse('async-sse')
  @Locked('x')
  async asyncSse(): Promise<Observable<string>> {
    await gate.opened;
    return this.stream();
  }

  @Sse('busy-sse')
  @Locked('x', { waitMs: 0, onContended: 'skip' })
  busySse(): Observable<string> {
    return this.stream();
  }

  @Get('observable')
  @Locked('x')
  observable(): Observable<string> {
    return this.stream();
  }

  private stream(): Observable<string> {
    return new Observable((subscriber) => {
      done.push('began');
      const subscription = ticks.subscribe(subscriber);
      return () => {
        done.push('ended');
        subscription.unsubscribe();
      };
    });
  }
}

const began = () => until(() => done.includes('began'), { what: 'the handler runs' });
const held = ({ locks }: TestApp) => until(() => locks.isLocked('x'), { what: 'the lock is held' });
const free = ({ locks }: TestApp) => until(async () => !(await locks.isLocked('x')), { what: 'the lock is free' });

/** A client that hangs up on request; its server knows about it when `gone` is settled. */
function client({ app, url }: TestApp, path: string) {
  const gone = new Promise<void>((resolve) =>
    app.getHttpServer().once('connection', (socket: NodeJS.EventEmitter) => socket.once('close', resolve)),
  );
  let text = '';
  const call = request(`${url}/${path}`, { agent: false }, (response) => {
    response.setEncoding('utf8').on('data', (part: string) => (text += part));
    response.on('error', () => {});
  });
  call.on('error', () => {}).end();
  return {
    get text() {
      return text;
    },
    hangUp: () => {
      call.destroy();
      return gone;
    },
  };
}

describe.each(HTTP_ADAPTERS)('on %s', (_name, makeAdapter) => {
  /** Waiting calls wait for longer than the tests take. */
  const test = sharedApp({ controllers: [Handlers] }, { memory: true, waitMs: 60_000 }, undefined, makeAdapter());

  describe('when the client is gone, the lock', () => {
    it('the lock of a request whose client is gone stays until the handler is done, and is released then [G189]', async () => {
      const { hangUp } = client(test, 'slow');
      await began();
      await hangUp();
      expect(await test.locks.isLocked('x')).toBe(true);
      expect(done).toEqual(['began']);
      gate.open();
      await free(test);
      expect(done).toEqual(['began', 'ended']);
    });

    it.each(['sse', 'observable', 'async-sse'])('of a stream is given back, and the stream ends: %s', async (path) => {
      const { hangUp } = client(test, path);
      gate.open();
      await began();
      await held(test);
      await hangUp();
      await free(test);
      expect([done, ticks.observed]).toEqual([['began', 'ended'], false]);
    });

    it('is given back when the promise brings its stream too late, which never begins', async () => {
      const { hangUp } = client(test, 'async-sse');
      await held(test);
      await hangUp();
      expect(await test.locks.isLocked('x')).toBe(true);
      gate.open();
      await free(test);
      expect([done, ticks.observed]).toEqual([[], false]);
    });
  });

  it.each(['sse', 'async-sse'])(
    'a stream is sent as it comes, under the lock, which is given back at its end: %s',
    async (path) => {
      const reader = client(test, path);
      gate.open();
      await began();
      ticks.next('one');
      await until(() => reader.text.includes('data: one'), { what: 'the first value came' });
      expect(await test.locks.isLocked('x')).toBe(true);
      ticks.complete();
      await free(test);
      await using _lock = await test.locks.acquire('x');
      const skipped = await fetch(`${test.url}/busy-sse`);
      expect([skipped.status, (await skipped.text()).includes('data')]).toEqual([200, false]);
    },
  );
});
