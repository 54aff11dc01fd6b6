import 'reflect-metadata';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Locked, LockService } from 'nest-redis-lock';
import { LockModule } from 'nest-redis-lock/backend';
import { EtcdLocks } from './etcd-locks.js';

const endpoints = (process.env.ETCD_URL ?? 'http://localhost:2379').split(',') as [string, ...string[]];

/** In place of a database. It refuses a write with an older token, because the end of a lease does not stop a write. */
const account = { balance: 0, lastToken: 0 };
function write(balance: number, token: number): void {
  if (token < account.lastToken) throw new Error('a later holder has written');
  Object.assign(account, { balance, lastToken: token });
}

@Injectable()
class Deposits {
  constructor(private readonly locks: LockService) {}

  @Locked('account')
  async deposit(): Promise<void> {
    const { balance } = account;
    await pause(1); // another call could read the same balance here
    write(balance + 1, this.locks.current().fencingToken!);
  }
}

@Module({
  imports: [
    LockModule.forRoot({ backend: () => new EtcdLocks({ endpoints }), commandTimeoutMs: 5_000, ttlMs: 10_000 }),
  ],
  providers: [Deposits],
})
class AppModule {}

// As two processes would, each application has its own store.
const start = () => NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
const [one, other] = await Promise.all([start(), start()]);

await Promise.all(Array.from({ length: 20 }, (_, at) => (at % 2 ? one : other).get(Deposits).deposit()));
console.log(`20 deposits of 1 by two instances: ${account.balance}`);

// A late write of an earlier holder, as after a pause of its process.
const earlier = await one.get(LockService).withLock('account', (lock) => lock.fencingToken!);
await other.get(Deposits).deposit();
try {
  write(0, earlier);
} catch (error) {
  console.log(`a write that comes too late is refused: ${(error as Error).message}`);
}
await Promise.all([one.close(), other.close()]);
if (account.balance !== 21) process.exitCode = 1;
