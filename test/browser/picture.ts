import { randomBytes } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import type { CanActivate } from '@nestjs/common';
import type { LockService } from 'nest-redis-lock';
import { LocksPageModule } from 'nest-redis-lock/page';
import { it, onTestFinished } from 'vitest';
import { LockService as Locks } from '../../lib/index.js';
import { resolveOptions } from '../../lib/compose/composition.js';
import { REDIS } from '../../lib/compose/redis-lock-options.js';
import { Shutdown } from '../../lib/core/service/shutdown.js';
import { monotonic } from '../../lib/core/time/clock.js';
import { startApp } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { openTab, startChromium } from './tab.js';

class Everybody implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}

/** A lock service like a process on another machine. */
async function openOn(host: string, pid: number, redis: string): Promise<LockService> {
  const processName = `${host}/${pid}/${randomBytes(9).toString('base64url')}`;
  const options = resolveOptions(REDIS, { redis, shutdownTimeoutMs: 0 });
  const backend = await REDIS.open(options, monotonic, processName);
  await backend.connect(1_000);
  const parts = { backend, options, registration: 'default', now: monotonic, processName, shutdown: new Shutdown() };
  const service = Locks.of(parts);
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}

it('takes the picture of the page of locks', async () => {
  const { hostname } = os;
  Object.assign(os, { hostname: () => 'web-1' });
  syncBuiltinESMExports();
  onTestFinished(() => {
    Object.assign(os, { hostname });
    syncBuiltinESMExports();
  });
  const redis = await RedisServer.start();
  onTestFinished(() => redis.stop());
  const browser = await startChromium();
  onTestFinished(() => browser.close());
  const imports = [LocksPageModule.register({ path: 'admin/locks', guards: [Everybody], allowRelease: true })];
  const { url, locks } = await startApp({ imports }, { redis: redis.url, shutdownTimeoutMs: 0 });
  const web2 = await openOn('web-2', 4121, redis.url);
  const worker1 = await openOn('worker-1', 388, redis.url);
  const worker2 = await openOn('worker-2', 402, redis.url);

  const ended = await worker2.acquire('nightly-report', { holdMs: 120_000 });
  await ended.release();
  await web2.acquire('order:7313');
  for (const waiter of [worker1, locks, worker2])
    void waiter.acquire('order:7313', { waitMs: 60_000, label: 'order:{0}' }).catch(() => {});
  await locks.acquire('cart:5ac1', { label: 'cart:{0}' });
  await worker1.acquire('import:prices', { ttlMs: 60_000 });

  const page = await openTab(browser, `${url}/admin/locks`, { viewport: { width: 1340, height: 560 } });
  await page.getByText('4 locks held').waitFor();
  await page.getByRole('row').filter({ hasText: 'order:7313' }).getByRole('listitem').nth(2).waitFor();
  await page.screenshot({ path: fileURLToPath(new URL('../../docs/images/page.png', import.meta.url)) });
}, 120_000);
