import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { compileLibrary } from '../support/compiled-library.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(root, 'docs/architecture.md'), 'utf8');
const section = (title: string) => page.split(`\n## ${title}\n`)[1]!.split('\n## ')[0]!;

it('the page on the architecture has a line for each room that the lint knows, in the same order', () => {
  const floors = readFileSync(join(root, '.ci/floors.mjs'), 'utf8');
  const rooms = [...floors.matchAll(/^ {2}'?([a-z/]+)'?: \[/gm)].map(([, room]) => room);
  const lines = [...section('The rooms').matchAll(/^\| `([a-z/.]+)`/gm)].map(([, room]) => room);
  expect(rooms.length).toBeGreaterThan(20);
  expect(lines).toEqual(['index.ts', ...rooms]);
});

it('the page on the architecture names only files that are there', () => {
  const named = [...page.matchAll(/`((?:lib|test|docs|bench|\.ci|servers)\/[\w/.-]+)`/g)].map(([, path]) => path!);
  const ofCall = [...section('The way of one call').matchAll(/^\d+\. `([\w/.-]+)`/gm)].map(([, path]) => `lib/${path}`);
  expect(ofCall.length).toBeGreaterThan(15);
  const missing = [...named, ...ofCall].filter((path) => !path.includes('<') && !existsSync(join(root, path)));
  expect(missing).toEqual([]);
});

it('the page on the architecture has a line for each file that runs code in one call', async () => {
  const ways = await filesOfEachWay();
  const lines = [...section('The way of one call').matchAll(/^\d+\. `([\w/.-]+)`/gm)].map(([, path]) => path);
  expect([...lines].sort()).toEqual(ways.get('a call on one Redis'));
});

/** What `bench/call-path.mjs` finds by coverage. */
async function filesOfEachWay(): Promise<Map<string, string[]>> {
  const dist = mkdtempSync(join(tmpdir(), 'call-path-'));
  onTestFinished(() => rmSync(dist, { recursive: true }));
  symlinkSync(compileLibrary(), join(dist, 'esm'), 'junction');
  const env = { ...process.env, BENCH_DIST: dist, REDIS_SERVER: (await provideRedisServer()).path };
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'bench/call-path.mjs')], { env });
  const ways = [...stdout.matchAll(/^(\S.*): \d+ files\n((?: {2}.*\n)+)/gm)];
  return new Map(ways.map(([, way, files]) => [way!, files!.trim().split(/\n {2}/)]));
}
