import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { compileLibrary } from '../support/compiled-library.js';
import { read, root } from './compile.js';

const page = read('docs/architecture.md');
const OTHER_WAYS = ['a call on a Redlock', 'a loss', 'a hand-over', 'a permit', 'a lock in PostgreSQL'];
const section = (title: string) => page.split(`\n## ${title}\n`)[1]!.split('\n## ')[0]!;

it('the page on the architecture has a line for each room that the lint knows, in the same order', () => {
  const [, table] = read('.dependency-cruiser.mjs').split('const ROOMS = ');
  const rooms = [...table!.split('\n};')[0]!.matchAll(/^ {2}'?([a-z/]+)'?: \[/gm)].map(([, room]) => room);
  const lines = [...section('The rooms').matchAll(/^\| `([a-z/.]+)`/gm)].map(([, room]) => room);
  expect(rooms.length).toBeGreaterThan(20);
  expect(lines).toEqual(['index.ts', ...rooms]);
});

it('the page on the architecture names only files that are there', () => {
  const named = [...page.matchAll(/`((?:lib|test|docs|bench|\.ci|servers)\/[\w/.-]+)`/g)].map(([, path]) => path!);
  const onWays = ['one call', ...OTHER_WAYS].flatMap((way) =>
    linesOf(`The way of ${way}`).map((path) => `lib/${path}`),
  );
  expect(onWays.length).toBeGreaterThan(30);
  const missing = [...named, ...onWays].filter((path) => !path.includes('<') && !existsSync(join(root, path)));
  expect(missing).toEqual([]);
});

it('the page on the architecture has a line for each file that runs code in one call, and for what others run in addition', async () => {
  const ways = await filesOfEachWay();
  const first = linesOf('The way of one call');
  expect([...first].sort()).toEqual(ways.get('a call on one Redis'));
  // The other ways name what is different: every file that the first call does not run, and others if they are
  // important for the description.
  for (const way of OTHER_WAYS) {
    const files = ways.get(way)!;
    const lines = linesOf(`The way of ${way}`);
    expect({ way, notRun: lines.filter((file) => !files.includes(file)) }).toEqual({ way, notRun: [] });
    const further = files.filter((file) => !first.includes(file));
    expect({ way, missing: further.filter((file) => !lines.includes(file)) }).toEqual({ way, missing: [] });
  }
});

/** The files of the numbered lines of a section. */
function linesOf(title: string): string[] {
  return [...section(title).matchAll(/^\d+\. `([\w/.-]+)`/gm)].map(([, path]) => path!);
}

/** The result of `bench/call-path.mjs`, by coverage. */
async function filesOfEachWay(): Promise<Map<string, string[]>> {
  const dist = mkdtempSync(join(tmpdir(), 'call-path-'));
  onTestFinished(() => rmSync(dist, { recursive: true }));
  symlinkSync(compileLibrary(), join(dist, 'esm'), 'junction');
  const env = { ...process.env, BENCH_DIST: dist, REDIS_SERVER: (await provideRedisServer()).path };
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'bench/call-path.mjs')], { env });
  const ways = [...stdout.matchAll(/^(\S.*): \d+ files\n((?: {2}.*\n)+)/gm)];
  return new Map(ways.map(([, way, files]) => [way!, files!.trim().split(/\n {2}/)]));
}
