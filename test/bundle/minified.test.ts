import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Test } from '@nestjs/testing';
import { build } from 'vite';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { compileLibrary } from '../support/compiled-library.js';
import { RedisServer } from '../support/redis-server.js';

const compiled = compileLibrary();
const folder = join(compiled, '..', `minified-${process.pid}`);

/** Bundles the library and ioredis, as applications do that shorten all class names. */
async function minified(): Promise<typeof import('nest-redis-lock')> {
  await build({
    configFile: false,
    logLevel: 'error',
    root: compiled,
    ssr: { noExternal: true, external: ['@nestjs/common', '@nestjs/core', 'rxjs'] },
    build: {
      ssr: join(compiled, 'index.js'),
      outDir: folder,
      emptyOutDir: true,
      minify: true,
      rolldownOptions: { output: { entryFileNames: 'index.mjs' } },
    },
  });
  return (await import(/* @vite-ignore */ pathToFileURL(join(folder, 'index.mjs')).href)) as never;
}

describe('in a minified bundle', () => {
  let bundle: Awaited<ReturnType<typeof minified>>;
  beforeAll(async () => {
    bundle = await minified();
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('each error in a minified bundle has its name, although its class has lost the name [G216]', () => {
    const made = {
      LockContendedError: new bundle.LockContendedError('k', 1),
      LockKeyError: new bundle.LockKeyError('no key'),
      LockLostError: new bundle.LockLostError('k', 'expired'),
      LockOptionsError: new bundle.LockOptionsError('no option'),
      LockSelfDeadlockError: new bundle.LockSelfDeadlockError('k'),
      LockUnavailableError: new bundle.LockUnavailableError('down'),
      NodeError: new bundle.NodeError('a:1', 'down'),
      StaleTokenError: new bundle.StaleTokenError(1),
    };
    const classes = Object.entries(bundle).flatMap(([exported, value]) =>
      typeof value === 'function' && value.prototype instanceof Error ? [{ exported, name: value.name }] : [],
    );
    expect(classes.map(({ exported }) => exported).sort()).toEqual([...Object.keys(made), 'LockError'].sort());
    expect(classes.filter(({ exported, name }) => name === exported)).toEqual([]);
    expect(Object.values(made).map((error) => String(error).split(':')[0])).toEqual(Object.keys(made));
  });

  it('a refused call gets an error with its name, and the service logs under its name', async () => {
    const { LockService, RedisLockModule } = bundle;
    const contexts: unknown[] = [];
    const logger = { log() {}, warn() {}, error: (...entry: unknown[]) => contexts.push(entry.at(-1)) };
    const app = await Test.createTestingModule({ imports: [RedisLockModule.forRoot({ memory: true })] })
      .setLogger(logger)
      .compile();
    const locks = app.get(LockService);
    const nested = locks.withLock('x', () => locks.withLock('x', { reentrant: false }, () => 'ran'));
    await expect(nested).rejects.toMatchObject({ name: 'LockSelfDeadlockError', code: 'LOCK_SELF_DEADLOCK' });
    await locks.acquire('lost');
    await locks.forceRelease('lost');
    expect(contexts).toEqual(['LockService']);
    await app.close();
  });

  it('a refusal of Redis is recognized, so that no lock is taken in another database', async () => {
    const redis = await RedisServer.start();
    onTestFinished(() => redis.stop());
    const registration = bundle.RedisLockModule.forRoot({ redis: `${redis.url}/99` });
    const starting = Test.createTestingModule({ imports: [registration] }).compile();
    await expect(starting).rejects.toThrow('it refused the database: ERR DB index is out of range. ');
  });
});
