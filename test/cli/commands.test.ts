import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { digestOf } from '../../lib/api/holder.js';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { call } from './call.js';

const ESC = '\u001b[31m';
const CSI = '\u009b31m';
const BIDI = '\u202e';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start({ args: ['--maxmemory-policy', 'noeviction', '--appendonly', 'yes'] });
});
afterAll(() => server.stop());

const on = (...argv: string[]) => [...argv, '--redis', server.url];

describe('doctor', () => {
  it('the command doctor exits with 0 when all is well, 2 for warnings if they count, 1 for errors and 69 without an answer [G476]', async () => {
    expect(await call(on('doctor'))).toMatchObject({ code: 0, out: expect.stringContaining('on one Redis'), err: '' });
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    expect(await call(on('doctor'))).toMatchObject({ code: 0, out: expect.stringContaining('warning:') });
    expect(await call(on('doctor', '--strict'))).toMatchObject({ code: 2 });
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1');
    expect(await call(on('doctor', '--strict'))).toMatchObject({ code: 1, out: expect.stringContaining('error:') });
    await server.command('CONFIG', 'SET', 'maxmemory', '0');
    const nowhere = await call(['doctor', '--redis', 'redis://127.0.0.1:1'], { connectMs: 200 });
    expect(nowhere).toMatchObject({ code: 69, out: '', err: expect.stringContaining('ECONNREFUSED') });
  });

  it('the command doctor prints the report as JSON', async () => {
    const { out } = await call(on('doctor', '--json'));
    expect(JSON.parse(out)).toMatchObject({ backend: 'redis', nodes: [{ name: server.url.slice('redis://'.length) }] });
  });

  it('the command doctor writes nothing, also on the nodes of a Redlock, which could not be initialised otherwise', async () => {
    const nodes = await Promise.all([RedisServer.start(), RedisServer.start()]);
    const urls = [server, ...nodes].map(({ url }) => url).join(',');
    try {
      expect(await call(['doctor', '--redlock', urls])).toMatchObject({ code: 0 });
      expect(await Promise.all(nodes.map((node) => node.keys()))).toEqual([[], []]);
    } finally {
      await Promise.all(nodes.map((node) => node.stop()));
    }
  });

  it('the command doctor breaks long lines for a terminal', async () => {
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    const { out } = await call(on('doctor'), { columns: 80 });
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    expect(Math.max(...out.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(out.replaceAll(/\s+/g, ' ')).toContain('Set noeviction, or give locks a Redis of their own.');
  });
});

describe('inspect', () => {
  it('the command inspect shows the holder of a lock, and exits with 1 when it is free', async () => {
    const locks = await openLocks({ redis: server.url });
    const key = freshKey();
    expect(await call(on('inspect', key))).toEqual({ code: 1, out: `${key} is free\n`, err: '' });
    expect(await call(on('inspect', key, '--json'))).toEqual({ code: 1, out: 'null\n', err: '' });
    const lock = await locks.acquire(key);
    const { code, out } = await call(on('inspect', key));
    expect(code).toBe(0);
    expect(out).toContain(`pid ${process.pid} on `);
    expect(out).toContain(digestOf(lock.owner));
    expect(out).toContain(String(lock.fencingToken));
    const { out: json } = await call(on('inspect', key, '--json'));
    expect(JSON.parse(json)).toMatchObject({ key, digest: digestOf(lock.owner), holder: { pid: process.pid } });
  });

  it('the command inspect takes a key that begins with a dash behind "--"', async () => {
    expect(await call([...on('inspect'), '--', '--json'])).toMatchObject({ code: 1, out: '--json is free\n' });
  });

  it('the prefix is that of the application', async () => {
    const locks = await openLocks({ redis: server.url, keyPrefix: 'other' });
    await locks.acquire('with-prefix');
    expect(await call(on('inspect', 'with-prefix'))).toMatchObject({ code: 1 });
    expect(await call(on('inspect', 'with-prefix', '--prefix', 'other'))).toMatchObject({ code: 0 });
  });

  it('no text from Redis or the command line reaches the terminal with control characters [G478]', async () => {
    const key = `${ESC}${CSI}${BIDI}evil\nsecond line`;
    await server.command('SET', `lock:{${key}}`, `${ESC}owner${CSI}`, 'PX', 60_000);
    const called = [
      await call(on('inspect', key)),
      await call(on('inspect', key, '--json')),
      await call(on('release', key, '--owner', ESC, '--yes')),
      await call(on('release', key, '--force'), { answer: 'no' }),
      await call(on('run', key, '--wait', '0', '--', 'true')),
      await call(on(`doctor${ESC}`)),
      await call(on('doctor', `--${ESC}x`)),
      await call(on('inspect', `free${ESC}`)),
      await call(on('doctor', '--prefix', ESC)),
      await call(on('ls', '*evil*')).then((listed) => ({ ...listed, out: listed.out.replaceAll('\t', ' ') })),
      await call(['inspect', 'x', '--redis', `/${ESC}`], { connectMs: 200 }),
    ];
    // eslint-disable-next-line no-control-regex
    const unsafe = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/;
    expect(called.filter(({ out, err }) => unsafe.test(out + err))).toEqual([]);
    expect(called[0]).toMatchObject({
      code: 0,
      out: expect.stringContaining('\\u{1b}[31m\\u{9b}31m\\u{202e}evil\\u{a}'),
    });
    expect(JSON.parse(called[1]!.out)).toMatchObject({ key, holder: { owner: `${ESC}owner${CSI}` } });
  });
});

describe('ls', () => {
  it('the command ls lists the locks that are held, by a pattern', async () => {
    const locks = await openLocks({ redis: server.url, keyPrefix: 'ls' });
    const ls = (...argv: string[]) => call(on('ls', '--prefix', 'ls', ...argv));
    expect(await ls()).toEqual({ code: 0, out: '', err: '' });
    for (const key of ['order:2', 'order:1', 'other']) await locks.acquire(key);
    const { out } = await ls('order:*');
    const rows = out.trimEnd().split('\n');
    expect(rows.map((row) => row.split('\t').slice(6))).toEqual([
      ['exclusive', '1', 'unknown'],
      ['exclusive', '1', 'unknown'],
    ]);
    expect(rows.map((row) => row.split('\t')[0])).toEqual(['order:1', 'order:2']);
    expect(rows[0]).toContain(`\tpid ${process.pid} on `);
    expect(JSON.parse((await ls('--json')).out)).toMatchObject({ locks: { length: 3 }, complete: true });
    expect(await ls('--limit', '2')).toMatchObject({ code: 0, err: expect.stringContaining('These may not be all') });
  });

  it('the command ls prints a table that is as wide as the terminal, whatever the keys are', async () => {
    const locks = await openLocks({ redis: server.url, keyPrefix: 'wide' });
    const ls = () => call(on('ls', '--prefix', 'wide'), { columns: 80 });
    expect(await ls()).toMatchObject({ out: 'no lock is held\n' });
    await locks.acquire(`${ESC}${'long'.repeat(100)}`);
    await locks.acquire('\u9396'.repeat(50));
    const { owner } = await locks.acquire('short');
    await server.command('SET', 'wide:{foreign}', `${ESC}${'owner'.repeat(100)}`);
    const { out } = await ls();
    const lines = out.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^KEY +HOLDER +DIGEST +HELD +LEFT +WAITING$/);
    expect(lines).toHaveLength(5);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(out).toContain(digestOf(owner)); // whole
    expect(out).toContain('\\u{1b}[31mlon');
    expect(out).not.toContain('\u001b');
  });

  it('the command ls looks again and again with --watch, until it is interrupted', async () => {
    const locks = await openLocks({ redis: server.url, keyPrefix: 'watch' });
    const lock = await locks.acquire('a');
    const shown: string[] = [];
    const before = process.listenerCount('SIGTERM');
    const watching = call(on('ls', '--prefix', 'watch', '--watch', '--json'), { printed: (line) => shown.push(line) });
    const keys = () =>
      shown.map((line) => (JSON.parse(line) as { locks: { key: string }[] }).locks.map(({ key }) => key));
    await until(() => keys().length > 0, { what: 'it has looked' });
    await lock.release();
    await until(() => keys().at(-1)!.length === 0, { what: 'it has looked again' });
    process.emit('SIGINT');
    expect(await watching).toMatchObject({ code: 0 });
    expect(keys()[0]).toEqual(['a']);
    expect(process.listenerCount('SIGTERM')).toBe(before);
  });

  it('the commands inspect and ls show the processes that wait, and print no number that they cannot know [G589]', async () => {
    const [holder, waiter] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
    const key = freshKey();
    const lock = await holder.acquire(key);
    const inside = holder.acquire(key); // waits in the process that holds the lock, so Redis knows nothing of it
    await until(async () => (await holder.inspect(key))?.waiters === 1, { what: 'it waits' });
    const [shown, listed, table] = [
      await call(on('inspect', key)),
      await call(on('ls', key)),
      await call(on('ls', key), { columns: 120 }),
    ];
    expect(shown.out).toMatch(/waiting +no process in the queue; calls inside the holder's process are not seen\n$/);
    expect(listed.out).toMatch(/\tunknown\texclusive\t1\tunknown\n$/);
    expect(table.out).toMatch(/WAITING\n.* unknown\n$/);
    const waiting = [waiter.acquire(key), waiter.acquire(key)];
    await until(async () => (await holder.inspect(key))?.waitingProcesses?.[0]?.waiters === 2, { what: 'it tells' });
    expect((await call(on('inspect', key))).out).toMatch(new RegExp(`waiting +pid ${process.pid} on .* \\(2 calls\\)`));
    expect((await call(on('ls', key))).out).toMatch(/\t1\texclusive\t1\t2\n$/);
    expect((await call(on('ls', key), { columns: 120 })).out).toMatch(/ 1 process, 2 calls\n$/);
    const json = JSON.parse((await call(on('inspect', key, '--json'))).out) as object;
    expect(json).toMatchObject({ waitingProcesses: [{ pid: process.pid, waiters: 2 }] });
    const told = ['SET', `lock:{${key}}:calls`, `${lock.owner}@3`, 'PX', 60_000] as const; // as with an extension
    await server.command(...told);
    expect((await call(on('inspect', key))).out).toMatch(
      new RegExp(`waiting +behind the holder: 3 calls, pid ${process.pid} on .* \\(2 calls\\)\n$`),
    );
    expect((await call(on('ls', key))).out).toMatch(/\t2\texclusive\t1\t5\n$/);
    expect((await call(on('ls', key), { columns: 120 })).out).toMatch(/ 2 processes, 5 calls\n$/);
    expect(JSON.parse((await call(on('inspect', key, '--json'))).out)).toMatchObject({ holders: [{ waiters: 3 }] });
    await lock.release();
    await Promise.all([inside, ...waiting].map(async (each) => (await each).release()));
  });

  it('the commands inspect and ls show the calls that wait behind the holder where no process waits in the queue', async () => {
    const holder = await openLocks({ redis: server.url });
    const key = freshKey();
    const lock = await holder.acquire(key);
    await server.command('SET', `lock:{${key}}:calls`, `${lock.owner}@1`, 'PX', 60_000);
    expect((await call(on('inspect', key))).out).toMatch(/waiting +behind the holder: 1 call\n$/);
    expect((await call(on('ls', key))).out).toMatch(/\t1\texclusive\t1\t1\n$/);
    expect((await call(on('ls', key), { columns: 120 })).out).toMatch(/ 1 process, 1 call\n$/);
    await lock.release();
  });
});

describe('release', () => {
  it('the command release takes a lock from the holder that was shown only, after a yes [G479]', async () => {
    const locks = await openLocks({ redis: server.url });
    const key = freshKey();
    const held = async () => (await locks.inspect(key))?.digest;
    const first = await locks.acquire(key);
    const digest = digestOf(first.owner);
    expect(await call(on('release', key, '--owner', 'f'.repeat(16), '--yes'))).toMatchObject({ code: 1 });
    expect(await call(on('release', key, '--owner', 'f'.repeat(16)), { answer: 'y' })).toMatchObject({ code: 1 });
    expect(await call(on('release', key, '--owner', digest), { answer: 'n' })).toMatchObject({ code: 1 });
    expect(await call(on('release', key, '--owner', digest))).toMatchObject({ code: 64 }); // nobody to ask
    expect(await call(on('release', key, '--force'))).toMatchObject({ code: 64 });
    expect(await call(on('release', key))).toMatchObject({ code: 64 });
    expect(await call(on('release', key, '--yes'))).toMatchObject({ code: 64 });
    expect(await call(on('release', key, '--owner', digest, '--force', '--yes'))).toMatchObject({ code: 64 });
    expect(await held()).toBe(digest);
    expect(await call(on('release', key, '--owner', digest, '--yes'))).toMatchObject({ code: 0 });
    expect(await held()).toBeUndefined();
    await first.release();
    await locks.acquire(key);
    expect(await call(on('release', key, '--force', '--yes'))).toMatchObject({ code: 0 });
    expect(await call(on('release', key, '--force', '--yes'))).toMatchObject({ code: 1 });
  });

  it('the commands ls, inspect and release know who holds permits in Redis', async () => {
    const locks = await openLocks({ redis: server.url });
    const key = freshKey();
    const take = (permits: number) => locks.acquirePermits(key, { limit: 5, permits });
    const [a, b] = [await take(2), await take(1)];
    const listed = await call(on('ls', key));
    expect(listed.out.trimEnd().split('\t').slice(6)).toEqual(['permits', '2', 'unknown']);
    const shown = await call(on('inspect', key));
    expect(shown.out).toContain('  mode        3 of 5 permits\n');
    expect(shown.out.match(/digest \w+/g)).toEqual([a, b].map(({ owner }) => `digest ${digestOf(owner)}`));
    expect(await call(on('release', key, '--owner', digestOf(a.owner)), { answer: 'y' })).toMatchObject({ code: 0 });
    const left = async () => (await locks.inspect(key))?.holders.map(({ digest }) => digest);
    expect(await left()).toEqual([digestOf(b.owner)]);
    await take(3);
    expect(await call(on('release', key, '--force'), { answer: 'y' })).toMatchObject({ code: 0 });
    expect(await left()).toBeUndefined();
  });

  it('the command release takes nothing from a holder that came while the question was read', async () => {
    const locks = await openLocks({ redis: server.url });
    const key = freshKey();
    const first = await locks.acquire(key);
    const answer = async () => {
      await first.release();
      await locks.acquire(key);
      return 'yes';
    };
    expect(await call(on('release', key, '--force'), { answer })).toMatchObject({ code: 1 });
    expect(await locks.isLocked(key)).toBe(true);
  });
});
