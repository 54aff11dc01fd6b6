import { hostname } from 'node:os';
import { expect, it } from 'vitest';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';
import { call } from './call.js';

const ESC = '\u001b[31m';
const CSI = '\u009b31m';
const BIDI = '\u202e';

const server = await serverOfFile('--maxmemory-policy', 'noeviction', '--appendonly', 'yes');
const on = (...argv: string[]) => [...argv, '--redis', server.url];

it('the command doctor exits with 0 when all is well, 2 for warnings if they count, 1 for errors and 69 without an answer [G476]', async () => {
  expect(await call(on('doctor'))).toMatchObject({ code: 0, out: expect.stringContaining('on one Redis'), err: '' });
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
  expect(await call(on('doctor'))).toMatchObject({ code: 0, out: expect.stringContaining('warning:') });
  expect(await call(on('doctor', '--strict'))).toMatchObject({ code: 2 });
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1');
  expect(await call(on('doctor', '--strict'))).toMatchObject({ code: 1, out: expect.stringContaining('error:') });
  await server.command('CONFIG', 'SET', 'maxmemory', '0');
  const nodes = await Promise.all([1, 2].map(() => redisServer()));
  const redlock = [server, ...nodes].map(({ url }) => url).join(',');
  expect(await call(['doctor', '--redlock', redlock, '--json'])).toMatchObject({ code: 0 });
  expect(await Promise.all(nodes.map((node) => node.keys()))).toEqual([[], []]); // asking a node whether it votes would write to it
  const nowhere = await call(['doctor', '--redis', 'redis://127.0.0.1:1'], { connectMs: 200 });
  expect(nowhere).toMatchObject({ code: 69, out: '', err: expect.stringContaining('ECONNREFUSED') });
});

it('control characters in texts from Redis or the command line never reach the terminal [G478]', async () => {
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

it('the commands inspect and ls show the locks of a prefix that are held, as lines, as JSON, and as a table of the width of the terminal', async () => {
  const locks = await openLocks({ redis: server.url, keyPrefix: 'wide' });
  const wide = (...argv: string[]) => on(...argv, '--prefix', 'wide');
  expect(await call(wide('inspect', 'a'))).toEqual({ code: 1, out: 'a is free\n', err: '' });
  expect(await call(wide('inspect', 'a', '--json'))).toEqual({ code: 1, out: 'null\n', err: '' });
  expect(await call([...wide('inspect'), '--', '--json'])).toMatchObject({ code: 1, out: '--json is free\n' });
  expect(await call(wide('ls'))).toEqual({ code: 0, out: '', err: '' });
  expect(await call(wide('ls'), { columns: 80 })).toMatchObject({ out: 'no lock is held\n' });
  const lock = await locks.acquire('a');
  expect(await call(on('inspect', 'a'))).toMatchObject({ code: 1 });
  const { digest } = (await locks.inspect('a'))!;
  const { code, out } = await call(wide('inspect', 'a'));
  expect(code).toBe(0);
  for (const shown of [`pid ${process.pid} on `, digest, String(lock.fencingToken)]) expect(out).toContain(shown);
  for (const key of ['order:2', 'order:1', `${ESC}${'long'.repeat(100)}`, '\u9396'.repeat(50)])
    await locks.acquire(key);
  const rows = (await call(wide('ls', 'order:*'))).out.trimEnd().split('\n');
  expect(rows.map((row) => row.split('\t')[0])).toEqual(['order:1', 'order:2']);
  expect(JSON.parse((await call(wide('ls', '--json'))).out)).toMatchObject({ locks: { length: 5 }, complete: true });
  expect(await call(wide('ls', '--limit', '2'))).toMatchObject({
    err: expect.stringContaining('There may be more locks'),
  });
  const lines = (await call(wide('ls'), { columns: 80 })).out.trimEnd().split('\n');
  expect(lines[0]).toMatch(/^KEY +HOLDER +DIGEST +HELD +LEFT +WAITING$/);
  expect([lines.length, Math.max(...lines.map((line) => line.length)) <= 80]).toEqual([6, true]);
  expect(lines.join()).toContain(digest); // whole
});

it('the command inspect names no process for a detached lock, and says for how long it is held', async () => {
  const locks = await openLocks({ redis: server.url });
  const key = freshKey();
  await (await locks.acquire(key)).detach({ ttlMs: 10_800_000 });
  expect((await call(on('inspect', key))).out).toMatch(/ 3 h\n[^]*waiting +no process in the queue\n$/);
  await locks.acquire('for minutes', { ttlMs: 600_000 });
  expect((await call(on('inspect', 'for minutes'))).out).toContain(' 10 min\n');
});

it('the commands inspect and ls show the note of a holder, whatever another program has written [G1134]', async () => {
  const locks = await openLocks({ redis: server.url });
  const { owner } = await locks.acquire('noted', { note: 'editing "a"' });
  const holder = `pid ${process.pid} on ${hostname()}`;
  expect((await call(on('inspect', 'noted'))).out).toContain(`holder      ${holder} (note "editing "a"")\n`);
  expect((await call(on('ls', 'noted'))).out).toContain(`\t${holder} (note "editing "a"")\t`);
  const forged = `${owner.slice(0, owner.lastIndexOf('.'))}.${Buffer.from(ESC, 'utf16le').toString('base64url')}`;
  await server.command('SET', 'lock:{noted}', `${forged}@0000000000000001`, 'PX', 60_000);
  expect((await call(on('inspect', 'noted'))).out).toContain(`${holder} (note "\\u{1b}`);
});

it('the command doctor breaks its lines where the terminal ends', async () => {
  const { out } = await call(on('doctor'), { columns: 40 });
  const lines = out.trimEnd().split('\n');
  expect(lines.length).toBeGreaterThan(2);
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(40);
});

it('the command ls lists again and again with --watch, until it is interrupted', async () => {
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
  const inside = holder.acquire(key); // it waits in the process that holds the lock, so Redis does not know about it
  await until(async () => (await holder.inspect(key))?.waiters === 1, { what: 'it waits' });
  const [shown, listed, table] = [
    await call(on('inspect', key)),
    await call(on('ls', key)),
    await call(on('ls', key), { columns: 120 }),
  ];
  expect(shown.out).toMatch(/waiting +no process in the queue; calls inside the holder's process are not visible\n$/);
  expect(listed.out).toMatch(/\tunknown\texclusive\t1\tunknown\n$/);
  expect(table.out).toMatch(/WAITING\n.* unknown\n$/);
  const waiting = [waiter.acquire(key), waiter.acquire(key)];
  await until(async () => (await holder.inspect(key))?.waitingProcesses?.[0]?.waiters === 2, { what: 'it tells' });
  expect((await call(on('inspect', key))).out).toMatch(new RegExp(`waiting +pid ${process.pid} on .* \\(2 calls\\)`));
  expect((await call(on('ls', key))).out).toMatch(/\t1\texclusive\t1\t2\n$/);
  expect((await call(on('ls', key), { columns: 120 })).out).toMatch(/ 1 process, 2 calls\n$/);
  const json = JSON.parse((await call(on('inspect', key, '--json'))).out) as object;
  expect(json).toMatchObject({ waitingProcesses: [{ pid: process.pid, waiters: 2 }] });
  const told = ['SET', `lock:{${key}}:calls`, `${lock.owner}@3`, 'PX', 60_000] as const; // like an extension
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

it('the command release takes a lock only from the holder that it showed, after a yes [G479]', async () => {
  const locks = await openLocks({ redis: server.url });
  const key = freshKey();
  const held = async () => (await locks.inspect(key))?.digest;
  const first = await locks.acquire(key);
  const digest = (await held())!;
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
  const second = await locks.acquire(key);
  const answer = async () => {
    await second.release();
    await locks.acquire(key);
    return 'yes';
  };
  expect(await call(on('release', key, '--force'), { answer })).toMatchObject({ code: 1 });
  expect(await locks.isLocked(key)).toBe(true); // it belongs to a holder that came while the question was read
  expect(await call(on('release', key, '--force', '--yes'))).toMatchObject({ code: 0 });
  expect(await call(on('release', key, '--force', '--yes'))).toMatchObject({ code: 1 });
});

it('the command inspect has a line for each holder of permits, with its digest, and release takes them from one holder, or from all that it showed [G895]', async () => {
  const locks = await openLocks({ redis: server.url });
  const key = freshKey();
  const take = (permits: number) => locks.acquirePermits(key, { limit: 5, permits });
  const [a, b] = [await take(2), await take(1)];
  const holders = async () => (await locks.inspect(key))?.holders.map(({ digest }) => digest);
  const digests = (await holders())!;
  const { code, out } = await call(on('inspect', key));
  const [name, mode, ...lines] = out.trimEnd().split('\n');
  expect({ code, name, mode }).toEqual({ code: 0, name: key, mode: '  mode        3 of 5 permits' });
  const NAME = `pid ${process.pid} on \\S+`;
  expect(lines).toEqual([
    expect.stringMatching(`^  holder      ${NAME}: 2 permits, digest ${digests[0]}, remaining [\\d.]+ s$`),
    expect.stringMatching(`^  holder      ${NAME}: 1 permit, digest ${digests[1]}, remaining [\\d.]+ s$`),
    expect.stringMatching('^  waiting '),
  ]);
  const json = JSON.parse((await call(on('inspect', key, '--json'))).out);
  expect(json).toMatchObject({ mode: 'permits', permits: { held: 3, limit: 5 }, digest: digests[0] });
  expect(json.holders.map(({ digest }: { digest: string }) => digest)).toEqual(digests);
  const listed = await call(on('ls', key));
  expect(listed.out.trimEnd().split('\t').slice(6)).toEqual(['permits', '2', 'unknown']);
  expect((await call(on('ls', key), { columns: 200 })).out).toContain(' and 1 other');
  const taken = await call(on('release', key, '--owner', digests[0]!), { answer: 'y' });
  expect([taken.code, taken.err.match(/digest \w+/g)]).toEqual([0, [`digest ${digests[0]}`]]);
  expect([a.isHeld, await holders()]).toEqual([expect.any(Boolean), [digests[1]]]);
  await take(2);
  const answer = async () => {
    await take(1);
    return 'yes';
  };
  const all = await call(on('release', key, '--force'), { answer });
  expect([all.code, all.err]).toEqual([0, expect.stringContaining('Take it from these 2 holders?')]);
  expect(await holders()).toHaveLength(1); // the holder that came while the question was read
  await b.release();
});
