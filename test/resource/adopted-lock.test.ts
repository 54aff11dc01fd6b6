import { PGlite } from '@electric-sql/pglite';
import { assertFenced, fencedUpdate, StaleTokenError } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';

it('a row refuses a write of the process that detached the lock, once its adopter has written [G825]', async () => {
  const redis = await RedisServer.start();
  const db = await PGlite.create();
  onTestFinished(async () => {
    await db.close();
    await redis.stop();
  });
  await db.exec(
    "CREATE TABLE orders (id text PRIMARY KEY, state text, fence bigint NOT NULL DEFAULT 0); INSERT INTO orders VALUES ('7', 'new')",
  );
  const [sender, receiver] = await Promise.all([openLocks({ redis: redis.url }), openLocks({ redis: redis.url })]);
  const write = async (fence: number, state: string) => {
    const statement = fencedUpdate({ table: 'orders', set: { state }, where: { id: '7' }, fence });
    assertFenced((await db.query(statement.text, statement.values)).rows.length, statement);
  };
  const stateOf = async () => (await db.query<{ state: string }>('SELECT state FROM orders')).rows[0]!.state;

  const lock = await sender.acquire('order:7');
  await write(lock.fencingToken, 'packed');
  const parcel = await lock.detach({ ttlMs: 60_000 });
  await write(parcel.fencingToken, 'labelled'); // the lock keeps that token until it is adopted
  await receiver.withAdopted(parcel, ({ fencingToken }) => write(fencingToken, 'sent'));
  await expect(write(lock.fencingToken, 'late')).rejects.toBeInstanceOf(StaleTokenError);
  expect(await stateOf()).toBe('sent');
});
