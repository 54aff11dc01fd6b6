import { Injectable, Scope } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { getLockServiceToken, Limited, Locked, LockOptionsError, LockService, RedisLockModule } from 'nest-redis-lock';
import { SqlLockModule } from 'nest-redis-lock/sql';
import { expect, it, onTestFinished } from 'vitest';
import { Gate } from '../support/gate.js';
import { RecordingLogger } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { onPGlite, pglite } from './pglite.js';

async function start(
  imports: NonNullable<Parameters<typeof Test.createTestingModule>[0]['imports']>,
  providers = [Jobs],
) {
  const app = await Test.createTestingModule({ imports, providers }).setLogger(new RecordingLogger()).compile();
  onTestFinished(() => app.close());
  return app.init();
}

@Injectable()
class Jobs {
  readonly gate = new Gate();
  isRunning = false;

  @Locked('job')
  async run(): Promise<string> {
    this.isRunning = true;
    await this.gate.opened;
    return 'done';
  }
}

const registered = (app: TestingModule, name?: string): LockService => app.get(getLockServiceToken(name));

it('SqlLockModule beside RedisLockModule under one name is refused: locks of one would not exclude those of the other [G705]', async () => {
  const memory = RedisLockModule.forRoot({ memory: true });
  const sql = SqlLockModule.forRoot(await onPGlite());
  for (const [imports, names] of [
    [
      [memory, sql],
      ['RedisLockModule', 'SqlLockModule'],
    ],
    [
      [sql, memory],
      ['RedisLockModule', 'SqlLockModule'],
    ],
  ] as const) {
    const error = await start([...imports]).then(
      () => undefined,
      (reason: Error) => reason,
    );
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error!.message).toMatch(
      / under one name, "default": locks of one would not exclude those of the other\. Keep one of them, or give one of them a name\.$/,
    );
    for (const name of names) expect(error!.message).toContain(name);
  }
});

it('two registrations of SqlLockModule under one name are one if they are the same, and are refused if they are not [G706]', async () => {
  const options = await onPGlite();
  const app = await start([SqlLockModule.forRoot(options), SqlLockModule.forRoot({ ...options, ttlMs: 30_000 })]);
  expect(await registered(app).withLock('k', () => 'ran')).toBe('ran');
  await expect(start([SqlLockModule.forRoot(options), SqlLockModule.forRoot(await onPGlite())])).rejects.toThrow(
    'registers SqlLockModule under one name, "default", but with different options (table)',
  );
  const elsewhere = { ...options, postgres: 'postgres://localhost/shop', lazyConnect: true };
  await expect(start([SqlLockModule.forRoot(elsewhere), SqlLockModule.forRoot(options)])).rejects.toThrow(
    'but with different options (postgres',
  );
});

it('an application may have locks in a table and others elsewhere, by their names [G707]', async () => {
  const app = await start([
    RedisLockModule.forRoot({ memory: true }),
    SqlLockModule.forRoot({ ...(await onPGlite()), name: 'billing' }),
  ]);
  const lock = await registered(app).acquire('k');
  await registered(app, 'billing').withLock('k', async () => {
    expect((await registered(app, 'billing').list()).locks).toHaveLength(1);
  });
  await lock.release();
});

it('an application that closes finishes the work that holds a lock in the table, and gives the lock back [G708]', async () => {
  const options = await onPGlite();
  const app = await start([SqlLockModule.forRoot(options)]);
  const jobs = app.get(Jobs);
  const running = jobs.run();
  await until(() => jobs.isRunning, { what: 'it runs' });
  const closing = app.close();
  await expect(
    until(
      () =>
        registered(app)
          .acquire('other')
          .then(() => false),
      { what: 'it is refused' },
    ),
  ).rejects.toThrow();
  jobs.gate.open();
  expect(await running).toBe('done');
  await closing;
  const { rows } = await (
    await pglite()
  ).query(`SELECT expires_at = 'epoch' AS is_free FROM ${options.table} WHERE resource_lock_key = 'job'`);
  expect(rows).toEqual([{ is_free: true }]);
});

it('an application does not start when a method with @Limited has its locks in a table, even in a class of request scope [G887]', async () => {
  @Injectable({ scope: Scope.REQUEST })
  class Partners {
    @Limited('partner', { limit: 2, registration: 'billing' })
    async call(): Promise<void> {}
  }
  const imports = [
    RedisLockModule.forRoot({ memory: true }),
    SqlLockModule.forRoot({ ...(await onPGlite()), name: 'billing' }),
  ];
  await expect(start(imports, [Partners] as never)).rejects.toThrow(
    /^Partners\.call in RootTestModule is @Limited of the registration "billing"\. The store of this registration has no permits\. Locks in a database /,
  );
  await expect(start(imports)).resolves.toBeDefined();
});
