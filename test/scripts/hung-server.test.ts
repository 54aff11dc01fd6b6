import type { RedisOptions } from 'ioredis';
import { beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, EXTEND } from '../../lib/stores/redis/scripts/lua.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import { type Reply, ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import type { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { clientOf, proxyTo, redisServer } from '../support/stage.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const LIMIT_MS = 250;

describe('A server that hangs', () => {
  let server: RedisServer;
  let proxy: TcpProxy;
  let sequence = 0;

  beforeEach(async () => {
    server = await redisServer();
    proxy = await proxyTo(server);
  });

  /** The server's cache has the scripts. */
  async function runnerOn(at: { port: number }, options?: RedisOptions, limitMs = LIMIT_MS): Promise<ScriptRunner> {
    const client = clientOf(at, options);
    await client.ping();
    const runner = new ScriptRunner(portOf(client), limitMs);
    await acquire(runner);
    await extend(runner);
    await server.resetCalls();
    return runner;
  }
  const acquire = (runner: ScriptRunner): Promise<Reply> => {
    const key = `key:${++sequence}`;
    return runScript(runner, ACQUIRE, ['fence', key], [10_000, 'me@']);
  };
  const extend = (runner: ScriptRunner): Promise<Reply> => runScript(runner, EXTEND, ['key'], [10_000, 'me@']);
  const faultOf = (answer: Promise<Reply>): Promise<ScriptFault> =>
    answer.then(
      () => expect.unreachable('it answered'),
      (fault: ScriptFault) => fault,
    );
  const answers = (runner: ScriptRunner): Promise<boolean> =>
    acquire(runner).then(
      () => true,
      () => false,
    );

  it('may answer after the limit: a late answer is not taken for the answer to the next command', async () => {
    const runner = await runnerOn(proxy);
    proxy.hold();
    await faultOf(acquire(runner));
    proxy.release();
    await until(() => answers(runner), { what: 'it serves again' });
    expect(await extend(runner)).toBe(0);
    expect(Number(await acquire(runner))).toBeGreaterThan(1e15);
  });

  it('serves again when the connection was cut and the client does not send unfulfilled commands again', async () => {
    const runner = await runnerOn(proxy, { autoResendUnfulfilledCommands: false });
    proxy.dropReplies();
    await faultOf(acquire(runner));
    proxy.passReplies();
    await until(() => answers(runner), { what: 'it serves again' });

    // The same with a connection that is new when the limit has passed.
    proxy.dropReplies();
    const fault = faultOf(acquire(runner));
    await new Promise(setImmediate); // sent
    proxy.passReplies();
    await fault;
    await until(() => answers(runner), { what: 'it serves once more' });
  });

  it('has a bounded number of commands queued for it by a client with a commandTimeout of its own', async () => {
    const runner = await runnerOn(server, { commandTimeout: 50 }, 1_000);
    server.pause();
    expect(await faultOf(acquire(runner))).toMatchObject({ mayHaveRun: true, disconnected: false });
    const faults = await Promise.all(Array.from({ length: 50 }, () => faultOf(acquire(runner))));
    expect(faults.every(({ mayHaveRun }) => !mayHaveRun)).toBe(true);
    server.resume();
    await until(() => answers(runner), { what: 'it serves again' });
    expect(await server.calls()).toMatchObject({ evalsha: 2 });
  });

  it('is not the same as a blocked event loop: an answer that has arrived counts, however late it is read', async () => {
    const runner = await runnerOn(server, {}, 50);
    const answer = acquire(runner);
    await new Promise<void>((resolve) =>
      process.nextTick(() => {
        const end = performance.now() + 300;
        while (performance.now() < end);
        resolve();
      }),
    );
    expect(Number(await answer)).toBeGreaterThan(1e15);
  });
});
