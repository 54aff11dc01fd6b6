import type { RedisOptions } from 'ioredis';
import { afterEach, expect, it } from 'vitest';
import { acquireOn, backendOf, claimOn, freshKey, releaseOn, warmUp } from '../support/claims.js';
import { clientOf, serverOfFile } from '../support/stage.js';
import { counterOn, ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

/** Options of a client of the application; without them, the library creates the client. */
const CLIENTS: [string, RedisOptions | undefined][] = [
  ['a client of its own', undefined],
  ['a client with default options', {}],
  ['a client with a command timeout shorter than the limit', { commandTimeout: 300 }],
  ['a client with a command timeout longer than the limit', { commandTimeout: 800 }],
  ['a client that sends nothing again', { autoResendUnfulfilledCommands: false }],
  ['a client without an offline queue', { enableOfflineQueue: false }],
];

const server = await serverOfFile();
afterEach(() => server.resume());

it.each(CLIENTS)(
  'an acquire that was given up leaves no lock when the server runs it late, by %s [G51]',
  async (_name, options) => {
    const redis = options ? clientOf(server, options) : server.url;
    const backend = await backendOf({ redis, commandTimeoutMs: 500 });
    await warmUp(backend);
    const claim = claimOn(freshKey());
    const counter = await counterOn(server);
    server.pause();
    expect(await acquireOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    server.resume();
    await until(async () => (await counterOn(server)) > counter, { what: 'the late acquire has run' });
    const isLeft = () => server.command('EXISTS', `lock:{${claim.key}}`);
    await until(async () => (await isLeft()) === 0, { what: 'its lock is released' });
    // The next call gets the lock long before the ttl of the abandoned attempt has passed.
    const next = claimOn(claim.key);
    await until(async () => (await acquireOn(backend, next)).status === 'acquired', { what: 'the lock is free' });
    expect(await ownerOn(server, claim.key)).toBe(next.owner);
    expect(await releaseOn(backend, next)).toEqual({ status: 'released' });
  },
);
