import { hostname } from 'node:os';
import type { LockInfo, LockPing } from 'nest-redis-lock';
import { LocksPageModule } from 'nest-redis-lock/page';
import { describe, expect, it } from 'vitest';
import { pageText } from '../../lib/page/page-text.js';
import { refuseForeign } from '../../lib/page/same-origin.js';
import { MAX_HOLDERS, MAX_ROWS, viewOf } from '../../lib/page/view.js';
import { post, startApp } from '../support/nest-app.js';
import { Anyone, Viewer, type Seen } from './viewer.js';

const PING: LockPing = {
  registration: 'default',
  available: true,
  closing: false,
  nodes: { voting: 1, of: 1 },
  problems: [],
};

function lockOf(pid: number): LockInfo {
  const holder = { owner: 'secret', host: hostname(), pid };
  const one = { holder, digest: 'd', remainingMs: 1 };
  return { key: 'k', mode: 'exclusive', holders: [one], ...one, waiters: 0, waitingProcesses: [holder] };
}

function shown(locks: LockInfo[], complete: boolean): Seen {
  return JSON.parse(viewOf({ locks, complete, scanned: 1_000 }, PING).json(false)) as Seen;
}

describe('what is shown', () => {
  it('it shows a key as one line that none of its characters can turn or hide, whole if the library could have made it, and otherwise cut', () => {
    const textOf = (key: string) => shown([{ ...lockOf(1), key }], true).rows![0]!.text;
    expect(textOf('a\n\u202eb\u200b')).toBe('a\\u{a}\\u{202e}b\\u{200b}');
    expect([textOf('order:7'), textOf('k'.repeat(1_024))]).toEqual([undefined, undefined]);
    expect(textOf('k'.repeat(1_000_000))).toBe(`${'k'.repeat(1_024)}… (998976 more characters)`);
  });

  it('locks that calls wait for come first, then the oldest, and locks of unknown age last [G1038]', () => {
    const lock = (key: string, since: number | undefined, waiting: Partial<LockInfo> = {}): LockInfo => {
      const free = { ...lockOf(process.pid + 1), waitingProcesses: [], key };
      return { ...free, since: since === undefined ? undefined : new Date(since), ...waiting };
    };
    const [one] = lockOf(1).holders;
    const locks = [
      lock('unknown', undefined),
      lock('young', 20),
      lock('old', 10),
      lock('waited for in the queue', 40, { waitingProcesses: [one!.holder] }),
      lock('waited for behind the holder', 50, { holders: [{ ...one!, waiters: 1 }], holder: one!.holder }),
      lock('waited for here', 30, { waiters: 1 }),
    ];
    expect(shown(locks, true).rows!.map(({ key }) => key)).toEqual([
      'waited for here',
      'waited for in the queue',
      'waited for behind the holder',
      'old',
      'young',
      'unknown',
    ]);
  });

  it('it says why there may be more locks: as many as fit, or no more time', () => {
    const full = Array.from({ length: MAX_ROWS }, () => lockOf(1));
    expect(shown(full, true).incomplete).toBeUndefined();
    expect(shown(full, false).incomplete).toBe('rows');
    expect(shown(full.slice(1), false).incomplete).toBe('time');
  });
});

it('of many holders of a lock, the first and the number of the others are shown, with the time of the last lease', () => {
  const holders = Array.from({ length: MAX_HOLDERS + 3 }, (_, index) => ({
    ...lockOf(index).holders[0]!,
    remainingMs: index,
    permits: 1,
  }));
  const crowd: LockInfo = { ...lockOf(0), mode: 'permits', permits: { held: MAX_HOLDERS + 3, limit: 99 }, holders };
  const [row] = shown([crowd], true).rows!;
  expect(row!.holders!.map(({ pid }) => pid)).toEqual(Array.from({ length: MAX_HOLDERS }, (_, index) => index));
  expect(row).toMatchObject({ more: 3, remainingMs: MAX_HOLDERS + 2, mode: 'permits' });
  expect(shown([lockOf(1)], true).rows![0]).not.toHaveProperty('holders');
});

it('the text of the page names its registration, and its script from where it was asked for, as text', () => {
  expect(pageText('/', false, '<b>&\n')).toContain('<h1>Locks of &#34;&#60;b&#62;&#38;\\u{a}&#34;</h1>');
  for (const [url, script] of [
    ['/admin/locks', './locks/page.js'],
    ['/admin/locks/', './page.js'],
    ['/admin/locks?from=/a', './locks/page.js'],
    ['/a"><script>', './a&#34;&#62;&#60;script&#62;/page.js'],
    ['/javascript:0', './javascript:0/page.js'],
  ] as const) {
    expect(pageText(url, false, 'default')).toContain(`<script src="${script}" defer></script>`);
  }
});

const allows = (headers: Record<string, string>) => {
  try {
    refuseForeign({ url: '/release', headers: { 'content-type': 'application/json; charset=utf-8', ...headers } });
    return true;
  } catch {
    return false;
  }
};

it.each<[string, Record<string, string>]>([
  ['a host with the default port', { origin: 'https://shop.example', host: 'shop.example:443' }],
  ['HTTP/2, which has no header Host', { origin: 'https://shop.example:8443', ':authority': 'shop.example:8443' }],
  ['a host in other letters', { origin: 'http://shop.example', host: 'Shop.Example' }],
])('a request of the page itself is not refused: %s', (_, headers) => {
  expect(allows(headers)).toBe(true);
});

it.each<[string, Record<string, string>]>([
  ['another port', { origin: 'https://shop.example:8443', host: 'shop.example' }],
  ['a host that cannot be read', { origin: 'https://shop.example', host: 'shop example' }],
  ['no host', { origin: 'https://shop.example' }],
  ['two values of Sec-Fetch-Site', { 'sec-fetch-site': 'same-origin, cross-site' }],
])('a request that may be of another page is refused: %s', (_, headers) => {
  expect(allows(headers)).toBe(false);
});

it('the page shows the notes of who holds a lock, and who waits [G1135]', async () => {
  const imports = [LocksPageModule.register({ path: 'locks', guards: [Anyone] })];
  const { url, locks } = await startApp({ imports }, { memory: true });
  await using _noted = await locks.acquire('noted', { note: 'Anna <b>, editing' });
  const viewer = await Viewer.open(`${url}/locks/events`);
  const row = await viewer.sees('the lock', ({ rows }: Seen) => rows?.[0]);
  expect(row.holder).toMatchObject({ pid: process.pid, note: 'Anna <b>, editing' });
});

it('the page shows all who hold permits, with a digest of each for viewers who may release it [G894]', async () => {
  const { url, locks } = await startApp(
    {
      imports: [
        LocksPageModule.register({ path: 'admin', guards: [Anyone], allowRelease: true }),
        LocksPageModule.register({ path: 'locks', guards: [Anyone] }),
      ],
    },
    { memory: true },
  );
  const take = (permits: number) => locks.acquirePermits('mail', { limit: 5, permits });
  const [first, second] = [await take(2), await take(1)];
  const digests = (await locks.inspect('mail'))!.holders.map(({ digest }) => digest);
  const both = ({ rows }: Seen) => rows?.find(({ holders }) => holders?.length === 2);

  const reader = await Viewer.open(`${url}/locks/events`);
  const read = await reader.sees('both holders', both);
  expect(read).toMatchObject({ key: 'mail', mode: 'permits', permits: { held: 3, limit: 5 }, more: 0 });
  expect(read.holders).toMatchObject([2, 1].map((permits) => ({ permits, pid: process.pid, isThis: true })));
  for (const secret of [...digests, first!.owner, second!.owner]) expect(reader.text).not.toContain(secret);

  const operator = await Viewer.open(`${url}/admin/events`);
  const row = await operator.sees('both holders', both);
  expect(row.holders!.map(({ digest }) => digest)).toEqual(digests);
  expect(row.digest).toBeUndefined();
  const headers = { 'sec-fetch-site': 'same-origin' };
  const answer = await post(`${url}/admin/release`, { key: 'mail', digest: digests[1] }, { headers });
  expect(await answer.json()).toEqual({ released: true });
  expect([first!.isHeld, second!.isHeld]).toEqual([true, false]);
  await operator.sees('the other holder', ({ rows }) => rows?.find(({ holders }) => holders?.length === 1));
  await first!.release();
});
