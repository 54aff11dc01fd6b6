import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { examplesOf } from './compile.js';
import { handBuiltKeys } from './hand-built-keys.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const filesIn = (folder: string, end: string) =>
  readdirSync(`${root}${folder}`, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(end) && !file.includes('node_modules'))
    .map((file) => `${folder}/${file}`);
const pages = ['README.md', ...filesIn('docs', '.md'), ...filesIn('sample-app', '.md')];

describe('what finds keys that are put together by hand', () => {
  it.each([
    'locks.withLock(`order:${id}`, work)',
    'await this.locks.tryAcquire(`order:${id}`)',
    'locks.withLock([`order:${id}`, "ledger"], work)',
    'locks.acquireAll(ids.map((id) => `order:${id}`))',
    'locks.inspect("order:" + id)',
    'const key = `order:${id}`;\nlocks.acquire(key)',
    'class A { @Locked((id: string) => `order:${id}`) async run(id: string) {} }',
    'class A { @Locked(fromContext(({ ip }) => `import:${ip}`)) async run() {} }',
    'fence.write(`cart:${id}`, token, value)',
  ])('finds that of %s', (source) => {
    expect(handBuiltKeys(source)).toHaveLength(1);
  });

  it.each([
    'locks.withLock(lockKey`order:${id}`, () => fetch(`/orders/${id}`))',
    'locks.acquireAll(ids.map((id) => lockKey`order:${id}`))',
    'locks.acquire("order:7")',
    'const key = lockKey`order:${id}`;\nlocks.acquire(key)',
    'class A { @Locked("order:{0}") async run(id: string) {} }',
    'cache.get(`order:${id}`)',
  ])('finds none in %s', (source) => {
    expect(handBuiltKeys(source)).toEqual([]);
  });
});

it.each(pages)('no example of %s puts a key together by hand', (page) => {
  expect(examplesOf(page).flatMap(handBuiltKeys)).toEqual([]);
});

it.each(filesIn('sample-app', '.ts'))('%s puts no key together by hand', (file) => {
  expect(handBuiltKeys(readFileSync(`${root}${file}`, 'utf8'))).toEqual([]);
});
