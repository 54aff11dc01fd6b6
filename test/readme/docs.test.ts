import { existsSync, readdirSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { read, root } from './compile.js';

const docs = readdirSync(`${root}docs`).filter((file) => file.endsWith('.md'));
/** All Markdown files of the repository. */
const all = [...markdownIn('')].sort();
/** The files that are in the package. */
const { files } = JSON.parse(read('package.json')) as { files: string[] };
const shipped = files.filter((file) => file.endsWith('.md'));

function* markdownIn(folder: string): Generator<string> {
  for (const entry of readdirSync(`${root}${folder}`, { withFileTypes: true })) {
    const path = folder + entry.name;
    if (entry.isFile() && path.endsWith('.md')) yield path;
    else if (entry.isDirectory() && !/^(\.|node_modules$|dist)/.test(entry.name)) yield* markdownIn(`${path}/`);
  }
}

interface Link {
  readonly text: string;
  /** Relative to the repository. */
  readonly path: string;
  readonly anchor?: string;
}

function linksOf(page: string): Link[] {
  const text = read(page).replaceAll(/^```.*?^```/gms, '');
  const links = text.matchAll(/\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)/g);
  return [...links].map(([link, path, anchor]) => {
    const file = path ? fileURLToPath(new URL(path, `file://${root}${page}`)) : `${root}${page}`;
    return { text: link, path: relative(root, file), anchor };
  });
}

/** The anchors that the headings of a page make. */
const anchorsOf = (path: string) =>
  [...read(path).matchAll(/^#+ (.*)$/gm)].map((heading) =>
    heading[1]!
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  );

describe.each(all)('%s', (page) => {
  it('links only to what is there', () => {
    const broken = linksOf(page).filter(
      ({ path, anchor }) =>
        !existsSync(`${root}${path}`) || (anchor !== undefined && !anchorsOf(path).includes(anchor)),
    );
    expect(broken.map(({ text }) => text)).toEqual([]);
  });
});

it('docs/index.md, from which the sidebar of the site is made, lists every page of docs once', () => {
  const listed = linksOf('docs/index.md').map(({ path }) => path);
  const others = docs.filter((file) => file !== 'index.md').map((file) => `docs/${file}`);
  expect([...listed].sort()).toEqual([...others, 'docs/adr'].sort());
});

it.each([
  ['mutex', 'README.md'],
  ['semaphore', 'docs/permits.md'],
  ['read/write lock', 'docs/shared.md'],
  ['cron', 'docs/hold.md'],
  ['idempotent', 'docs/promises.md'],
  ['redlock', 'docs/redlock.md'],
  ['ShedLock', 'docs/migrate-shedlock.md'],
])('who searches for "%s" finds it in %s', (words, page) => {
  expect(read(page).toLowerCase()).toContain(words.toLowerCase());
});

describe('the package', () => {
  it('has the README and the user guides', () => {
    expect(shipped).toEqual(expect.arrayContaining(['README.md', 'docs/fencing.md']));
    expect(all).toEqual(expect.arrayContaining(shipped));
  });

  it('has at most 40 000 words to read', () => {
    const words = shipped.flatMap((page) => read(page).trim().split(/\s+/));
    expect(words.length).toBeLessThanOrEqual(40_000);
  });

  it.each(shipped)('has all that its %s links to', (page) => {
    const missing = linksOf(page).filter(({ path }) => !files.includes(path));
    expect(missing.map(({ text }) => text)).toEqual([]);
  });
});

describe('the README', () => {
  const readme = read('README.md');

  it('can be read in five minutes: it has at most 130 lines', () => {
    expect(readme.trimEnd().split('\n').length).toBeLessThanOrEqual(130);
  });

  it('names each of its sections in its table of contents', () => {
    const sections = [...readme.matchAll(/^## (.*)$/gm)].map(([heading]) => heading);
    const contents = linksOf('README.md').filter(({ path, anchor }) => path === 'README.md' && anchor);
    expect(sections.length).toBeGreaterThan(7);
    expect(contents).toHaveLength(sections.length);
  });

  it('names the costs that are on the pages on performance and on scale', () => {
    /** The cells after the first one of a row, in the first table of a text that has such a row. */
    const rowOf = (text: string, first: string) =>
      text
        .split('\n')
        .map((line) => line.split('|').map((cell) => cell.trim()))
        .find((cells) => cells[1] === first)!
        .slice(2);
    const measured = (figure: string, digits: number) =>
      Number(rowOf(read('docs/performance.md'), figure)[0]).toFixed(digits);
    const wakeUps = read('docs/performance.md').split('### Wake-up after a hold of 500')[1]!;
    const [bytesHere, bytesInRedis] = rowOf(read('docs/scale.md'), 'held lock');
    for (const cost of [
      `**Rate**: ${measured('Uncontended: rate to raw', 2)} times the rate of a bare ioredis client`,
      `; ${measured('200 in flight: rate to raw', 1)} times with 200 locks in flight`,
      `**Time to wake up**: ${rowOf(wakeUps, 'nest-redis-lock')[0]} ms from a release`,
      `${measured('4 × 25, 0 ms: commands a turn', 2)} a turn if 100 calls in four processes want one lock`,
      `at most ${measured('2, 32 and 128 services on one key: most commands a turn', 0)} if each turn goes to another process`,
      `${bytesHere} bytes in the process, ${bytesInRedis} in Redis`,
    ]) {
      expect(readme).toContain(cost);
    }
  });

  it('shows a picture', () => {
    expect(readme).toMatch(/!\[[^\]]+\]\(docs\/images\//);
  });
});
