import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { LockService } from 'nest-redis-lock';
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
