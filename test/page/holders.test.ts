import { LocksPageModule } from 'nest-redis-lock/page';
import { expect, it } from 'vitest';
import { post, startApp } from '../support/nest-app.js';
import { Anyone, Viewer, type Seen } from './viewer.js';

it('the page shows all who hold permits, with a digest of each to release it by for those alone who may [G894]', async () => {
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
