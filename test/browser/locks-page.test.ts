import type { CanActivate } from '@nestjs/common';
import helmet from 'helmet';
import type { LockService } from 'nest-redis-lock';
import { LocksPageModule } from 'nest-redis-lock/page';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { HTTP_ADAPTERS, openApp, type TestApp } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { complaintsOf, openTab, startChromium } from './tab.js';

class Everybody implements CanActivate {
  static isRefused = false;

  canActivate(): boolean {
    return !Everybody.isRefused;
  }
}

let redis: RedisServer;
let browser: Browser;
beforeAll(async () => {
  [redis, browser] = await Promise.all([RedisServer.start(), startChromium()]);
}, 180_000);
afterAll(async () => {
  await browser.close();
  await redis.stop();
});
beforeEach(() => redis.command('FLUSHALL'));

const lineOf = (page: Page, key: string) =>
  page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: key, exact: true }) });
const message = (page: Page) => page.getByRole('status');
const button = (page: Page, key: string) => page.getByRole('button', { name: `Release ${key}`, exact: true });
/** The name of the element that has the focus. */
const focused = (page: Page) => page.evaluate<string | null>(`document.activeElement.getAttribute('aria-label')`);

describe.each(HTTP_ADAPTERS)('the page of locks in a browser, on %s', (_adapter, makeAdapter) => {
  let made: TestApp;
  let locks: LockService;
  let admin: string;
  let readOnly: string;
  beforeAll(async () => {
    const guards = [Everybody];
    made = await openApp(
      {
        imports: [
          LocksPageModule.register({ path: 'admin/locks', guards, allowRelease: true }),
          LocksPageModule.register({ path: 'locks', guards }),
        ],
      },
      { redis: redis.url },
      (app) => {
        app.setGlobalPrefix('api');
        app.use(helmet());
      },
      makeAdapter(),
    );
    await made.app.listen(0, '127.0.0.1');
    locks = made.locks;
    admin = `${await made.app.getUrl()}/api/admin/locks`;
    readOnly = `${await made.app.getUrl()}/api/locks`;
  });
  afterAll(() => made.app.close());

  it('it shows what another process holds as it happens, and which processes wait [G471]', async () => {
    const page = await openTab(browser, readOnly);
    await page.getByText('0 locks held').waitFor();
    const [holder, waiter] = await Promise.all([
      LockProcess.start({ redis: redis.url }),
      LockProcess.start({ redis: redis.url }),
    ]);
    const { fencingToken } = await holder.acquire('order:7');
    const line = lineOf(page, 'order:7');
    await line.getByText(`pid ${holder.pid}`).waitFor();
    await line.getByRole('cell', { name: String(fencingToken), exact: true }).waitFor();
    const waiting = waiter.acquire('order:7', { waitMs: 60_000 });
    await line
      .getByRole('listitem')
      .filter({ hasText: `pid ${waiter.pid}` })
      .waitFor();
    await holder.release('order:7');
    await waiting;
    await line.getByRole('listitem').waitFor({ state: 'detached' });
    await line.getByText(`pid ${waiter.pid}`).waitFor();
    await waiter.release('order:7');
    await line.waitFor({ state: 'detached' });
  });

  it('a lock that a call begins to wait for goes to the top, and its button keeps the focus [G1039]', async () => {
    const held = [await locks.acquire('order:21'), await locks.acquire('order:22')];
    const page = await openTab(browser, admin);
    await button(page, 'order:22').focus();
    const waiting = locks.acquire('order:22', { waitMs: 60_000 });
    await lineOf(page, 'order:22').getByText('1 call of this process').waitFor();
    expect(await page.getByRole('rowheader').allInnerTexts()).toEqual(['order:22', 'order:21']);
    expect(await focused(page)).toBe('Release order:22');
    for (const each of held) await each.release();
    await (await waiting).release();
  });

  it('it says that nobody waits for a detached lock, behind which no process can hide calls', async () => {
    const parcel = await (await locks.acquire('order:23')).detach({ ttlMs: 60_000 });
    const page = await openTab(browser, readOnly);
    await lineOf(page, 'order:23').getByRole('cell', { name: 'none', exact: true }).waitFor();
    await (await locks.adopt(parcel)).release();
  });

  it('it asks before it releases a lock, and releases only the holding that it asked about [G472]', async () => {
    const page = await openTab(browser, admin);
    const holder = await LockProcess.start({ redis: redis.url });
    await holder.acquire('order:8');
    await button(page, 'order:8').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(`pid ${holder.pid}`).waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await dialog.waitFor({ state: 'hidden' });
    expect(await locks.isLocked('order:8')).toBe(true);

    await button(page, 'order:8').click();
    await holder.release('order:8');
    const next = await locks.acquire('order:8');
    await lineOf(page, 'order:8').getByText('this process').waitFor(); // behind the dialog
    await dialog.getByRole('button', { name: 'Release' }).click();
    await message(page)
      .filter({ hasText: 'Not released, because it now has another holder, or none: order:8' })
      .waitFor();
    expect((await locks.inspect('order:8'))?.holder.owner).toBe(next.owner);

    await button(page, 'order:8').click();
    await dialog.getByRole('button', { name: 'Release' }).click();
    await message(page).filter({ hasText: 'Released: order:8' }).waitFor();
    await lineOf(page, 'order:8').waitFor({ state: 'detached' });
    expect(next.isHeld).toBe(false);
  });

  it('it says, before it releases permits, that no fencing token stops the work of their holder', async () => {
    const held = [await locks.acquirePermits('mail:1', { limit: 2 }), await locks.acquire('order:11')];
    const page = await openTab(browser, admin);
    const dialog = page.getByRole('dialog');
    const tokens = 'a resource that checks fencing tokens';
    const [permits, lock] = [lineOf(page, 'mail:1').getByRole('button'), button(page, 'order:11')];
    for (const [release, said, unsaid] of [
      [permits, 'permits have no fencing token', tokens],
      [lock, tokens, 'permits'],
      [permits, 'permits have no fencing token', tokens],
    ] as const) {
      await release.click();
      await dialog.getByText(said).waitFor();
      expect(await dialog.innerText()).not.toContain(unsaid);
      await dialog.getByRole('button', { name: 'Cancel' }).click();
    }
    for (const each of held) await each.release();
  });

  it('it has no button to release a lock when it is read-only, and the server refuses the request, too [G473]', async () => {
    const lock = await locks.acquire('order:9');
    const { digest } = (await locks.inspect('order:9'))!;
    const page = await openTab(browser, readOnly);
    await lineOf(page, 'order:9').waitFor();
    expect(await page.locator('button, dialog').count()).toBe(0);
    expect(await page.locator(':root').innerHTML()).not.toContain(digest);
    const status = await page.evaluate(
      async (body) => {
        const headers = { 'content-type': 'application/json' };
        return (await fetch('locks/release', { method: 'POST', headers, body })).status;
      },
      JSON.stringify({ key: 'order:9', digest }),
    );
    expect(status).toBe(403);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });

  it('it shows a key with markup as text, and breaks no policy under helmet [G474]', async () => {
    const key = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    const lock = await locks.acquire(key);
    const page = await openTab(browser, admin);
    await lineOf(page, key).waitFor();
    await button(page, key).click();
    await page.getByRole('dialog').getByText(key).waitFor();
    expect(await page.locator('img').count()).toBe(0);
    expect(await page.title()).toBe('Locks of "default"');
    await lock.release();
  });

  it('it can be used with the keyboard alone, and axe finds no problem, not in dark mode either [G475]', async () => {
    const lock = await locks.acquire('order:10');
    for (const colorScheme of ['light', 'dark'] as const) {
      const page = await openTab(browser, admin, { colorScheme });
      await button(page, 'order:10').waitFor();
      expect(await complaintsOf(page)).toEqual([]);
      for (let presses = 0; presses < 10; presses++) {
        if ((await focused(page)) === 'Release order:10') break;
        await page.keyboard.press('Tab');
      }
      await page.keyboard.press('Enter');
      await page.getByRole('dialog').waitFor();
      expect(await complaintsOf(page)).toEqual([]);
      await page.keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'hidden' });
      expect(await focused(page)).toBe('Release order:10');
      expect(lock.isHeld).toBe(true);
      if (colorScheme === 'light') continue;
      await page.keyboard.press('Enter');
      await page.keyboard.press('Tab'); // from Cancel, which has the focus
      await page.keyboard.press('Enter');
      await message(page).filter({ hasText: 'Released: order:10' }).waitFor();
    }
    expect(lock.isHeld).toBe(false);
  });

  it('it says that it is refused, and tries again until it is not', async () => {
    const page = await openTab(browser, readOnly);
    await page.getByText('0 locks held').waitFor();
    Everybody.isRefused = true;
    try {
      await page.getByLabel('Key', { exact: true }).fill('order');
      await message(page).filter({ hasText: 'Not connected' }).waitFor();
    } finally {
      Everybody.isRefused = false;
    }
    const lock = await locks.acquire('order:11');
    await lineOf(page, 'order:11').waitFor();
    await message(page).waitFor({ state: 'hidden' });
    await lock.release();
  });

  it('it finds locks by a part of their keys, or by a pattern', async () => {
    const held = await Promise.all(['order:1', 'order:2', 'report:1', 'a&b#c+d%e'].map((key) => locks.acquire(key)));
    const page = await openTab(browser, readOnly);
    await lineOf(page, 'report:1').waitFor();
    await page.getByLabel('Key', { exact: true }).fill('port');
    await page.getByText('1 lock held').waitFor();
    await page.getByLabel('Key', { exact: true }).fill('order:*');
    await page.getByText('2 locks held').waitFor();
    await page.getByLabel('Key', { exact: true }).fill('&b#c+d%');
    await page.getByText('1 lock held').waitFor();
    await lineOf(page, 'a&b#c+d%e').waitFor();
    await page.getByLabel('Key', { exact: true }).fill('');
    await page.getByText('4 locks held').waitFor();
    await Promise.all(held.map((lock) => lock.release()));
  });

  it('it says when no lock is held, or none that matches', async () => {
    const page = await openTab(browser, readOnly);
    await page.getByText('No lock is held now.').waitFor();
    expect(await page.getByRole('table').isVisible()).toBe(false);
    const lock = await locks.acquire('order:12');
    await lineOf(page, 'order:12').waitFor();
    expect(await page.getByText('No lock').isVisible()).toBe(false);
    await page.getByLabel('Key', { exact: true }).fill('cart');
    await page.getByText('No lock with a matching key is held now.').waitFor();
    await lock.release();
  });

  it('its title, its heading and each of its rows name the registration [G592]', async () => {
    const lock = await locks.acquire('order:13');
    const page = await openTab(browser, readOnly);
    await lineOf(page, 'order:13').getByRole('cell', { name: 'default', exact: true }).waitFor();
    expect(await page.title()).toBe('Locks of "default"');
    await page.getByRole('heading', { name: 'Locks of "default"' }).waitFor();
    await lock.release();
  });

  it.each([360, 768, 1280])(
    'it shows all of a lock on a screen of %i pixels, however long its key is, and axe finds no problem [G591]',
    async (width) => {
      const long = `order:${'0123456789'.repeat(100)}`;
      const held = await Promise.all([long, 'order:14'].map((key) => locks.acquire(key, { label: 'order:{0}' })));
      const page = await openTab(browser, admin, { viewport: { width, height: 800 } });
      for (const key of [long, 'order:14']) {
        const line = lineOf(page, key);
        await line.waitFor();
        const cells = await line.locator('th, td').all();
        expect(cells).toHaveLength(9);
        for (const cell of cells) {
          const box = (await cell.boundingBox())!;
          expect(box.x).toBeGreaterThanOrEqual(0);
          expect(box.x + box.width).toBeLessThanOrEqual(width);
          expect(box.width).toBeGreaterThan(60);
          expect(box.height).toBeLessThan(250);
        }
      }
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
      expect(await complaintsOf(page)).toEqual([]);
      await Promise.all(held.map((lock) => lock.release()));
    },
  );

  it('it raises no alarm about a lock that is kept until its time is over [G593]', async () => {
    const row = { holder: { host: 'web-1', pid: 1 }, remainingMs: 1, waiting: [], waitingHere: 0 };
    const view = {
      registration: 'default',
      ping: { available: true, nodes: { voting: 1, of: 1 }, problems: [] },
      rows: [
        { ...row, key: 'held' },
        { ...row, key: 'kept', keptUntil: Date.now() },
      ],
    };
    const page = await openTab(browser, readOnly);
    await page.route('**/events?match=*', (route) =>
      route.fulfill({ contentType: 'text/event-stream', body: `data: ${JSON.stringify(view)}\n\n` }),
    );
    await page.getByLabel('Key', { exact: true }).fill('e');
    const remaining = (key: string) => lineOf(page, key).locator('[data-heading=Remaining]');
    await remaining('held')
      .filter({ hasText: /^over$/ })
      .waitFor();
    await remaining('kept')
      .filter({ hasText: /^kept until [\d:]+$/ })
      .waitFor();
    expect(await remaining('held').getAttribute('class')).toBe('alarm');
    expect(await remaining('kept').getAttribute('class')).not.toBe('alarm');
  });
});
