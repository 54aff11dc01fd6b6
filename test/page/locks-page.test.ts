import { once } from 'node:events';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import {
  Inject,
  Injectable,
  Module,
  VersioningType,
  type CanActivate,
  type DynamicModule,
  type ExecutionContext,
} from '@nestjs/common';
import {
  getLockServiceToken,
  LockOptionsError,
  LockUnavailableError,
  RedisLockModule,
  type LockService,
} from 'nest-redis-lock';
import { LocksPageModule, type LocksPageOptions } from 'nest-redis-lock/page';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { HTTP_ADAPTERS, openApp, post, startApp, type TestApp } from '../support/nest-app.js';
import { cutOff } from '../../lib/page/request.js';
import { until } from '../support/until.js';
import { Anyone, Viewer } from './viewer.js';

@Injectable()
class Staff {
  readonly roles = ['reader', 'operator'];
}

@Module({ providers: [Staff], exports: [Staff] })
class StaffModule {}

const roleOf = (context: ExecutionContext): string => context.switchToHttp().getRequest().headers['x-role'];

@Injectable()
class StaffGuard implements CanActivate {
  constructor(@Inject(Staff) private readonly staff: Staff) {}

  canActivate(context: ExecutionContext): boolean {
    context.switchToHttp().getRequest().user = { id: roleOf(context) };
    return this.staff.roles.includes(roleOf(context));
  }
}

const READER = { 'x-role': 'reader' };
const OPERATOR = { 'x-role': 'operator' };
const OWN = { 'sec-fetch-site': 'same-origin' };

describe.each(HTTP_ADAPTERS)('the page of locks on %s', (_adapter, makeAdapter) => {
  let made: TestApp;
  let page: string;
  let readOnly: string;
  beforeAll(async () => {
    const guarded = { guards: [StaffGuard], imports: [StaffModule] };
    made = await openApp(
      {
        imports: [
          LocksPageModule.register({
            ...guarded,
            path: 'admin/locks',
            allowRelease: true,
            mayRelease: (context) => roleOf(context) === 'operator',
          }),
          LocksPageModule.register({ ...guarded, path: 'locks' }),
        ],
      },
      { memory: true },
      (app) => {
        app.setGlobalPrefix('api');
        app.enableVersioning({ type: VersioningType.URI, defaultVersion: '1' });
      },
      makeAdapter(),
    );
    await made.app.listen(0, '127.0.0.1');
    const url = await made.app.getUrl();
    page = `${url}/api/admin/locks`;
    readOnly = `${url}/api/locks`;
  });
  afterAll(() => made.app.close());

  const release = (url: string, body: unknown, headers: Record<string, string>) =>
    post(`${url}/release`, body, { headers });

  it('none of its routes answers a client that its guards refuse [G461]', async () => {
    for (const path of ['', '/page.js', '/page.css', '/events']) {
      expect((await fetch(page + path)).status).toBe(403);
    }
    const lock = await made.locks.acquire('guarded');
    const { digest } = (await made.locks.inspect('guarded'))!;
    expect((await release(page, { key: 'guarded', digest }, OWN)).status).toBe(403);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });

  it('it loads its script and its style from where it is, under a global prefix and versions [G466]', async () => {
    const answer = await fetch(page, { headers: READER });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
    const loaded = [...(await answer.text()).matchAll(/(?:src|href)="(\.[^"]*)"/g)].map(([, path]) => path!);
    expect(loaded).toEqual(['./locks/page.css', './locks/page.js']);
    const types = loaded.map(async (path) => {
      const file = await fetch(new URL(path, page), { headers: READER });
      return `${file.status} ${file.headers.get('content-type')}`;
    });
    expect(await Promise.all(types)).toEqual(['200 text/css; charset=utf-8', '200 text/javascript; charset=utf-8']);
  });

  it('it allows a browser to load only its own files, and to cache nothing [G467]', async () => {
    const policy =
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
      "form-action 'none'; frame-ancestors 'none'";
    const files = ['', '/page.js', '/page.css'].map((path) => fetch(page + path, { headers: READER }));
    const nothing = release(page, { key: 'free', digest: 'd' }, { ...OPERATOR, ...OWN });
    for (const { status, headers } of await Promise.all([...files, nothing])) {
      expect(status).toBe(200);
      expect(headers.get('content-security-policy')).toBe(policy);
      expect(headers.get('cache-control')).toBe('no-store, no-transform');
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.get('referrer-policy')).toBe('no-referrer');
    }
    const { headers } = (await Viewer.open(`${page}/events`, READER)).response;
    expect(headers['content-security-policy']).toBe(policy);
    expect(headers['content-type']).toBe('text/event-stream');
    expect(headers['x-accel-buffering']).toBe('no');
    expect(headers['cache-control']).toMatch(/no-store.*no-transform/);
  });

  it('viewers who may not release see neither owner values nor their digests, and are refused [G462]', async () => {
    const lock = await made.locks.acquire('secret', { label: 'secrets' });
    const { digest } = (await made.locks.inspect('secret'))!;
    for (const url of [page, readOnly]) {
      const viewer = await Viewer.open(`${url}/events`, READER);
      const row = await viewer.sees('the lock', ({ rows }) => rows?.find(({ key }) => key === 'secret'));
      expect(row).toMatchObject({
        label: 'secrets',
        token: lock.fencingToken,
        holder: { pid: process.pid, isThis: true },
      });
      expect(viewer.text).not.toContain(lock.owner);
      expect(viewer.text).not.toContain(lock.owner.split('/')[2]);
      expect(viewer.text).not.toContain(digest);
      expect((await release(url, { key: 'secret', digest }, { ...READER, ...OWN })).status).toBe(403);
    }
    expect((await release(readOnly, { key: 'secret', digest }, { ...OPERATOR, ...OWN })).status).toBe(403);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });

  it('it releases only the holding that was shown, and logs who did it [G463]', async () => {
    const first = await made.locks.acquire('taken');
    const viewer = await Viewer.open(`${page}/events`, OPERATOR);
    const find = (seen: { rows?: { key: string; digest?: string }[] }) => seen.rows?.find(({ key }) => key === 'taken');
    const { digest } = await viewer.sees('the first holder', find);
    expect(viewer.text).not.toContain(first.owner);
    await first.release();
    const second = await made.locks.acquire('taken');

    const late = await release(page, { key: 'taken', digest }, { ...OPERATOR, ...OWN });
    expect([late.status, await late.json()]).toEqual([200, { released: false }]);
    expect(second.isHeld).toBe(true);

    const row = await viewer.sees('the second holder', ({ rows }) =>
      rows?.find((each) => each.key === 'taken' && each.digest !== digest),
    );
    const answer = await release(page, { key: 'taken', digest: row.digest }, { ...OPERATOR, ...OWN });
    expect([answer.status, await answer.json()]).toEqual([200, { released: true }]);
    expect(second.isHeld).toBe(false);
    expect(made.log.lines.filter((line) => line.startsWith('warn Lock "taken"'))).toEqual([
      'warn Lock "taken" was not released, because it now has another holder, or none: requested on the locks page by user "operator".',
      'warn Lock "taken" was released by force: requested on the locks page by user "operator".',
    ]);
  });

  it('it refuses release requests that another site makes a browser send [G464]', async () => {
    const lock = await made.locks.acquire('forged');
    const { digest } = (await made.locks.inspect('forged'))!;
    const body = { key: 'forged', digest };
    const host = new URL(page).host;
    const foreign: Record<string, string>[] = [
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'none' },
      { 'sec-fetch-site': 'cross-site', origin: `http://${host}` },
      { origin: 'http://example.com' },
      { origin: `http://${host}.example.com` },
      { origin: 'null' },
      {},
    ];
    for (const headers of foreign) expect((await release(page, body, { ...OPERATOR, ...headers })).status).toBe(403);
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data',
      'application/jsonp',
    ]) {
      const { status } = await release(page, body, { ...OPERATOR, ...OWN, 'content-type': type });
      expect(status).toBe(415);
    }
    expect(lock.isHeld).toBe(true);

    const own = await release(page, body, { ...OPERATOR, origin: `http://${host}` });
    expect([own.status, await own.json()]).toEqual([200, { released: true }]);
    expect(lock.isHeld).toBe(false);
  });

  it('it refuses requests that name no lock', async () => {
    const named = { key: 'k', digest: 'web-1/17/random/1' };
    for (const body of [
      {},
      { key: 'k' },
      { key: 'k', digest: 7 },
      { key: ['k'], digest: 'd' },
      { key: '', digest: 'd' },
      named,
      [],
    ])
      expect((await release(page, body, { ...OPERATOR, ...OWN })).status).toBe(400);
    expect((await fetch(`${page}/events?match=a&match=b`, { headers: READER })).status).toBe(400);
  });

  it('it shows who waits, and what is kept', async () => {
    const kept = await made.locks.acquire('kept', { holdMs: 60_000 });
    await kept.release();
    const lock = await made.locks.acquire('waited for');
    const waiting = made.locks.acquire('waited for', { waitMs: 200_000 }); // on a busy machine, lists are renewed less often
    const matching = await Viewer.open(`${readOnly}/events?match=${encodeURIComponent('k*')}`, READER);
    expect(await matching.sees('rows', ({ rows }) => rows?.map(({ key }) => key))).toEqual(['kept']);
    const viewer = await Viewer.open(`${readOnly}/events`, READER);
    const rows = await viewer.sees(
      'the call that waits',
      (seen) => seen.rows?.some((row) => row.key === 'waited for') && seen.rows,
    );
    expect(rows).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ key: 'kept', keptUntil: expect.any(Number) }),
        expect.objectContaining({ key: 'waited for', waitingHere: 1, since: expect.any(Number) }),
      ]),
    );
    await lock.release();
    await (await waiting).release();
    await made.locks.forceRelease('kept');
  });
});

describe.each(HTTP_ADAPTERS)('an application on %s that closes', (_adapter, makeAdapter) => {
  it('it ends the streams of the page, and does not wait for its viewers [G469]', async () => {
    const made = await openApp(
      { imports: [LocksPageModule.register({ path: 'locks', guards: [Anyone] })] },
      { memory: true },
      undefined,
      makeAdapter(),
    );
    await made.app.listen(0, '127.0.0.1');
    const url = `${await made.app.getUrl()}/locks/events`;
    const viewer = await Viewer.open(url);
    await viewer.sees('the list', ({ rows }) => rows);
    const closing = made.app.close();
    await until(() => viewer.hasEnded, { what: 'the stream ends' });
    await closing;
  });
});

it('a client that does not read is cut off when its stream has ended, and does not delay a closing server [G465]', async () => {
  const server = createServer((_request, response) => {
    Readable.from(Array.from({ length: 800 }, () => Buffer.alloc(50_000))).pipe(response); // more than fits into the sockets
    cutOff(response);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const [response] = (await once(get({ port, host: '127.0.0.1', agent: false }), 'response')) as [IncomingMessage];
  response.on('error', () => {});
  const closed = once(server, 'close');
  server.close();
  await closed;
});

describe('LocksPageModule.register', () => {
  it('it needs guards for all routes, or a statement that there are none [G460]', () => {
    const without = [undefined, [], null, 'None', Anyone, [undefined], [Anyone, () => true], [class {}]];
    for (const guards of without) {
      const options = { path: 'locks', guards } as LocksPageOptions;
      expect(() => LocksPageModule.register(options)).toThrow(LockOptionsError);
      expect(() => LocksPageModule.register(options)).toThrow('guards must be a list of at least one guard');
    }
    LocksPageModule.register({ path: 'locks', guards: [Anyone, new Anyone()] });
  });

  it.each<[string, object]>([
    ['path must be a string', { path: undefined }],
    ['no option "readOnly"', { readOnly: true }],
    ['allowRelease must be true or false', { allowRelease: 'yes' }],
    ['mayRelease must be a function', { allowRelease: true, mayRelease: true }],
    ['mayRelease has no effect without allowRelease: true', { mayRelease: () => true }],
    ['registration must be the name', { registration: '' }],
  ])('it refuses wrong options: %s', (message, options) => {
    const given = { path: 'locks', guards: [Anyone], ...options } as LocksPageOptions;
    expect(() => LocksPageModule.register(given)).toThrow(LockOptionsError);
    expect(() => LocksPageModule.register(given)).toThrow(message);
  });

  const digestOf = async (locks: LockService) => (await locks.inspect('k'))!.digest;
  const atOnce = { memory: true, shutdownTimeoutMs: 0 } as const;
  const start = (options: object, ...more: DynamicModule[]) =>
    startApp({ imports: [LocksPageModule.register({ path: 'locks', guards: [Anyone], ...options }), ...more] }, atOnce);

  it.each<[says: string, mayRelease: () => unknown, page: number, released: number]>([
    [
      'nothing, as it fails',
      () => {
        throw new Error('no session');
      },
      ...([500, 500] as const),
    ],
    ['anything but true', () => Promise.resolve('admin'), 200, 403],
  ])('a viewer for whom mayRelease returns %s may not release', async (_, mayRelease, page, released) => {
    const { url, locks } = await start({ allowRelease: true, mayRelease });
    const lock = await locks.acquire('k');
    const shown = await fetch(`${url}/locks`);
    expect([shown.status, (await shown.text()).includes('<dialog')]).toEqual([page, false]);
    const body = { key: 'k', digest: await digestOf(locks) };
    expect((await post(`${url}/locks/release`, body, { headers: OWN })).status).toBe(released);
    expect(lock.isHeld).toBe(true);
  });

  it('a page of another registration shows the locks of that registration, and reports a store that does not answer', async () => {
    const second = RedisLockModule.forRoot({ ...atOnce, name: 'second' });
    const { app, url, log } = await start({ registration: 'second', allowRelease: true, guards: 'none' }, second);
    expect(log.lines).toEqual([expect.stringMatching(/^warn The page "locks" has no guards of its own/)]);
    const locks = app.get<LockService>(getLockServiceToken('second'));
    await locks.acquire('k');
    const viewer = await Viewer.open(`${url}/locks/events`);
    await viewer.sees('the lock', ({ rows }) => rows?.some(({ key }) => key === 'k'));
    expect(await (await fetch(`${url}/locks`)).text()).toContain('<h1>Locks of &#34;second&#34;</h1>');
    vi.spyOn(locks, 'forceRelease').mockRejectedValue(new LockUnavailableError('10.0.0.5 does not answer', 'k'));
    const answer = await post(`${url}/locks/release`, { key: 'k', digest: await digestOf(locks) }, { headers: OWN });
    expect([answer.status, await answer.text()]).toEqual([503, expect.not.stringContaining('10.0.0.5')]);
  });
});
