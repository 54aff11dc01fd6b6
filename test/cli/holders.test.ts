import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { LockService, Permit } from 'nest-redis-lock';
import { digestOf } from '../../lib/api/holder.js';
import type { Call } from '../../lib/cli/command.js';
import { openLocks } from '../support/open-locks.js';

let locks: LockService;
let call: typeof import('./call.js').call;
// The command line opens no locks in memory: these are given to it instead of those of its servers. Other files of the same worker may
// have loaded it before.
beforeAll(async () => {
  vi.resetModules();
  vi.doMock('../../lib/cli/open.js', () => ({
    TO_LOOK: {},
    withLocks: (_call: Call, _settings: object, work: (given: LockService) => Promise<number>) => work(locks),
  }));
  ({ call } = await import('./call.js'));
});
afterAll(() => {
  vi.doUnmock('../../lib/cli/open.js');
  vi.resetModules();
});
beforeEach(async () => {
  locks = await openLocks({ memory: true });
});

const on = (...argv: string[]) => [...argv, '--redis', 'redis://localhost'];
const take = (permits: number) => locks.acquirePermits('mail', { limit: 5, permits });
const NAME = `pid ${process.pid} on \\S+`;
const AT = '\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z';
const heldOf = (permits: readonly Permit[]) => permits.map(({ isHeld }) => isHeld);

it('the command inspect does not speak of the process of a lock that was detached', async () => {
  await (await locks.acquire('feed')).detach({ ttlMs: 60_000 });
  vi.spyOn(locks, 'inspect').mockImplementation(async () => {
    vi.mocked(locks.inspect).mockRestore();
    return { ...(await locks.inspect('feed'))!, waitingProcesses: [] }; // as of a store with a queue
  });
  expect((await call(on('inspect', 'feed'))).out).toMatch(/waiting +no process in the queue\n$/);
});

it('the command inspect has a line for each holder of permits, with its digest [G895]', async () => {
  const held = [await take(2), await take(1)];
  const { code, out } = await call(on('inspect', 'mail'));
  const [key, mode, ...lines] = out.trimEnd().split('\n');
  expect({ code, key, mode }).toEqual({ code: 0, key: 'mail', mode: '  mode        3 of 5 permits' });
  expect(lines).toEqual([
    expect.stringMatching(
      `^  holder      ${NAME}: 2 permits, digest ${digestOf(held[0]!.owner)}, since ${AT}, remaining [\\d.]+ s$`,
    ),
    expect.stringMatching(`^  holder      ${NAME}: 1 permit, digest ${digestOf(held[1]!.owner)}, since ${AT}, `),
    expect.stringMatching('^  waiting '),
  ]);
  const json = JSON.parse((await call(on('inspect', 'mail', '--json'))).out);
  const digests = held.map(({ owner }) => digestOf(owner));
  expect(json).toMatchObject({ mode: 'permits', permits: { held: 3, limit: 5 }, digest: digests[0] });
  expect(json.holders.map(({ digest }: { digest: string }) => digest)).toEqual(digests);
});

it('the command ls shows how many hold a lock, and how, to people and programs', async () => {
  const held = [await take(2), await take(1), await take(1)];
  const alone = await locks.acquire('order');
  const digest = digestOf(held[0]!.owner);
  const rows = (await call(on('ls'))).out.trimEnd().split('\n');
  const fields = rows.map((row) => row.split('\t'));
  expect(fields.map(([key, , id, , , , ...how]) => [key, id, ...how])).toEqual([
    ['mail', digest, 'permits', '3', 'unknown'],
    ['order', digestOf(alone.owner), 'exclusive', '1', 'unknown'],
  ]);
  const [, mail, order] = (await call(on('ls'), { columns: 200 })).out.split('\n');
  expect(mail).toMatch(new RegExp(`^mail   4 of 5 permits: ${NAME} and 2 others  ${digest}`));
  expect(order).toMatch(new RegExp(`^order  ${NAME}  `));
  const { locks: listed } = JSON.parse((await call(on('ls', '--json'))).out);
  expect(listed).toMatchObject([{ mode: 'permits', holders: [{ permits: 2 }, {}, {}] }, { mode: 'exclusive' }]);
});

it('the command release takes permits from the holder that is named alone, and shows that one', async () => {
  const held = [await take(2), await take(1), await take(1)];
  const digest = digestOf(held[1]!.owner);
  const { code, err } = await call(on('release', 'mail', '--owner', digest), { answer: 'y' });
  expect(code).toBe(0);
  expect(err.match(/digest \w+/g)).toEqual([`digest ${digest}`]);
  expect(err).toContain('Take it from this holder?');
  expect(heldOf(held)).toEqual([true, false, true]);
  expect(await call(on('release', 'mail', '--owner', digest), { answer: 'y' })).toMatchObject({ code: 1 });
  expect(await call(on('release', 'mail', '--owner', digestOf(held[2]!.owner), '--yes'))).toMatchObject({ code: 0 });
  expect(heldOf(held)).toEqual([true, false, false]);
});

it('the command release takes permits by force from all who were shown, and from none that came while the question was read', async () => {
  const held = [await take(2), await take(1)];
  let later!: Permit;
  const answer = async () => {
    later = await take(1);
    return 'yes';
  };
  const { code, err } = await call(on('release', 'mail', '--force'), { answer });
  expect(code).toBe(0);
  expect(err).toContain('Take it from these 2 holders?');
  expect(heldOf([...held, later])).toEqual([false, false, true]);
  const another = await take(1);
  expect(await call(on('release', 'mail', '--force', '--yes'))).toMatchObject({ code: 0 });
  expect(heldOf([later, another])).toEqual([false, false]);
  expect(await call(on('release', 'mail', '--force', '--yes'))).toMatchObject({ code: 1 });
});
