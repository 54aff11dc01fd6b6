import { once } from 'node:events';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { claimOn, extendOn, freshKey, opened } from '../support/claims.js';
import { connectionTo } from '../support/port-of.js';
import { redisServer } from '../support/stage.js';

describe('An error', () => {
  it('does not tell what was wrong with an earlier connection', async () => {
    const server = await redisServer();
    const client = new Redis(server.port, '127.0.0.1', { lazyConnect: true });
    const connection = await connectionTo(() => client);
    client.emit('error', new Error('an earlier problem'));
    expect(connection.problem.problem).toBe('not connected (wait): an earlier problem');
    expect(await connection.ready(15_000)).toBeUndefined();
    const ended = once(client, 'end');
    client.disconnect();
    await ended;
    expect(connection.problem.problem).toBe('not connected (end)');
  });

  it('says that the connection broke rather than which option of the client made it fail', async () => {
    const server = await redisServer();
    const backend = await opened({ redis: server.url, commandTimeoutMs: 5_000 });
    await backend.connect(5_000);
    server.pause();
    const extension = extendOn(backend, claimOn(freshKey()));
    await new Promise(setImmediate); // sent
    await server.kill();
    expect(await extension).toMatchObject({
      causes: [expect.objectContaining({ problem: 'the connection broke before the answer came' })],
    });
    await backend.close();
  });
});
