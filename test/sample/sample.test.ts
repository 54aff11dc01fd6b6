import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../support/until.js';
import { compileSampleApp, removeSampleApp, ROOT, SampleApp } from './sample-app.js';

beforeAll(compileSampleApp);
afterAll(removeSampleApp);

describe('npm start', () => {
  // Two at a time: they mostly wait for nights, leases and starting processes.
  it.concurrent(
    'shows three instances on Redis: they sell exactly the stock, run one nightly job, and replace a killed holder',
    async () => {
      const sample = new SampleApp(['--json']);
      expect(await sample.exitCode(), sample.stderr).toBe(0);
      const { unlocked, locked, nights, crash, ...run } = sample.figures;
      expect(run).toEqual({ locks: 'redis', instances: 3, problems: [] });
      expect(unlocked.sold).toBeGreaterThan(unlocked.stock);
      expect(unlocked).toMatchObject({ errors: 0, oversold: unlocked.sold - unlocked.stock });
      expect(locked).toMatchObject({ sold: locked.stock, oversold: 0, errors: 0, left: 0 });
      expect(locked.soldOut).toBe(locked.buyers - locked.stock);
      expect(nights).toEqual({ nights: 3, ticks: 9, ran: 3, skipped: 6 });
      expect(crash).toMatchObject({ lateWriteRefused: true, boxes: crash.boxesExpected });
      expect(crash.pause).toMatchObject({ lateWriteRefused: true, answeredStatus: 503, boxes: 17 });
      expect(crash.pause!.logged).toMatch(/^Lock "product:cocoa" \(fencing token \d+\) was lost: stalled\.$/);
      expect(sample.stderr).toMatch(/oversold +\d+ ! +0\n/);
      expect(sample.stderr).toContain('All figures hold.');
      expect(sample.stderr.split('1. A rush')[0], 'what it prints before the first table').not.toContain('was lost');
    },
  );

  it.concurrent('has three instances with --sql whose locks are in a table of a PGlite, without a Redis', async () => {
    const sample = new SampleApp(['--serve', '--sql'], { REDIS_SERVER: '/no/such/server' });
    const { A, B, C } = await sample.addresses();
    expect(sample.stdout).toContain('locks kept in: a table of PostgreSQL (PGlite)');
    const buyers = Array.from({ length: 9 }, (_, at) => buyTea([A, B, C][at % 3]!));
    expect((await Promise.all(buyers)).map(({ status }) => status)).toEqual(Array(9).fill(201));
    expect(await (await fetch(`${A}/products/tea`)).json()).toEqual({ sku: 'tea', boxes: 50 - 9 });
    sample.kill('SIGINT');
    expect(await sample.exitCode(), sample.stderr).toBe(0);
  });

  it.concurrent(
    'has one instance in memory where no redis-server is found or can be unpacked, says what was tried and what to do, and stays up until Ctrl-C',
    async () => {
      const sample = SampleApp.onBareMachine(['--serve']);
      const { A } = await sample.addresses();
      const said = (sample.stderr + sample.stdout).replaceAll(/\s+/g, ' ');
      expect(said).toContain(
        'one instance of the shop; locks kept in: memory of one process, because there is no Redis.',
      );
      expect(said).toContain('No redis-server on the PATH or in .redis/, and none could be unpacked by apt-get');
      expect(said).toContain('Or set REDIS_URL to a running Redis.');
      const purchase = await buyTea(A!);
      expect([purchase.status, await purchase.json()]).toMatchObject([201, { sku: 'tea' }]);
      sample.kill('SIGINT');
      expect(await sample.exitCode(), sample.stderr).toBe(0);
    },
  );

  it.concurrent('leaves neither a shop nor a Redis behind when it is killed -9', async () => {
    const sample = new SampleApp(['--serve']);
    const addresses = Object.values(await sample.addresses());
    const ports = addresses.map((address) => Number(new URL(address).port));
    ports.push(Number(/port (\d+)/.exec(sample.stdout)?.[1]));
    expect(await Promise.all(ports.map(isListening))).toEqual([true, true, true, true, true]);
    sample.kill('SIGKILL');
    await until(async () => !(await Promise.all(ports.map(isListening))).includes(true), {
      what: 'nobody listens on the ports of the shops, the warehouse and Redis',
    });
  });

  it('says which options there are', async () => {
    const sample = new SampleApp(['--sevre']);
    expect(await sample.exitCode()).toBe(2);
    expect(sample.stderr).toMatch(/Unknown option '--sevre'[^]*--serve {2,}/);
  });
});

function buyTea(shop: string): Promise<Response> {
  return fetch(`${shop}/products/tea/purchases`, { method: 'POST' });
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}

it('sample-app/shop, which readers copy, imports only its own files and packages', () => {
  const folder = `${ROOT}sample-app/shop/`;
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  const leaves = (file: string) => (file.includes('/') ? /from '\.\.\/\.\./ : /from '\.\./);
  expect(files.filter((file) => leaves(file).test(readFileSync(folder + file, 'utf8')))).toEqual([]);
});
