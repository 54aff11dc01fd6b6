import { expect, it } from 'vitest';
import { examplesOf, filesIn, read } from './compile.js';

const pages = ['README.md', ...filesIn('docs', '.md'), ...filesIn('sample-app', '.md')];

/** The calls that take the key of a lock, or of a fence, as their first argument. */
const CALLS = [
  String.raw`\b(?:acquire|acquireAll|tryAcquire|tryAcquireAll|withLock|isLocked|inspect|forceRelease|current|leader)\(`,
  String.raw`\b(?:Locked|LockedCron|LeaderOnly|WhileLeader|fromContext|Fenced|FencingToken)\(`,
  String.raw`\b(?:locks|set|held)\.get\(`,
  String.raw`[fF]ence\.(?:write|read|raise)\(`,
  String.raw`\bconst \w*[kK]eys? =`,
].join('|');

/**
 * A key that is built by hand from text and values, and not by `lockKey` or a template of `@Locked`: a value that is
 * undefined or empty would silently become part of it.
 */
const HAND_BUILT = new RegExp(`(?:${CALLS})(?:(?!lockKey)[^;\`'",])*?(?:\`[^\`]*\\$\\{|["'][^"'\\n]*["'] \\+)`);

it('a hand-built key is found in the first argument, a function or a constant', () => {
  for (const source of [
    'await this.locks.tryAcquire(`order:${id}`)',
    'locks.inspect("order:" + id)',
    'const key = `order:${id}`;\nlocks.acquire(key)',
    'class A { @Locked(fromContext(({ ip }) => `import:${ip}`)) async run() {} }',
  ]) {
    expect(source).toMatch(HAND_BUILT);
  }
  for (const source of [
    'locks.withLock(lockKey`order:${id}`, () => fetch(`/orders/${id}`))',
    'cache.get(`order:${id}`)',
  ]) {
    expect(source).not.toMatch(HAND_BUILT);
  }
});

it.each(pages)('no example of %s puts a key together by hand', (page) => {
  for (const example of examplesOf(page)) expect(example).not.toMatch(HAND_BUILT);
});

it.each(filesIn('sample-app', '.ts'))('%s puts no key together by hand', (file) => {
  expect(read(file)).not.toMatch(HAND_BUILT);
});
