import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const docs = new URL('../../docs/', import.meta.url);
const guarantees = readFileSync(new URL('guarantees.md', docs), 'utf8');

/** Each link to a test, with the titles that are quoted behind it. */
const proofs = guarantees
  .split(/(?=\[[\w-]+\]\(\.\.\/test\/)/)
  .slice(1)
  .map((text) => {
    const [, path] = /^\[[\w-]+\]\((\.\.\/test\/[^)]+)\)/.exec(text)!;
    const quoted = text.split(/\s\|\s|\n\n/)[0]!;
    return { path: path!, titles: [...quoted.matchAll(/"([^"]+)"/g)].map((match) => match[1]!) };
  });

/** The cells of each row of the tables whose last column is "what breaks it". */
const promises = guarantees
  .split(/\n(?!\|)/)
  .map((block) => block.split('\n').filter((line) => line.startsWith('|')))
  .filter(([header]) => header !== undefined && /\| what breaks it +\|$/.test(header))
  .flatMap(([, , ...rows]) => rows.map((row) => row.split(/(?<!\\)\|/).slice(1, -1)));

describe('docs/guarantees.md', () => {
  it('says of each promise which test proves it, and what breaks it', () => {
    expect(promises.length).toBeGreaterThan(100);
    const incomplete = promises.filter(
      (cells) => cells.length !== 3 || cells.some((cell) => cell.trim() === '') || !cells.join().includes('](../test/'),
    );
    expect(incomplete).toEqual([]);
  });

  it('proves its promises by tests', () => {
    expect(proofs.length).toBeGreaterThan(40);
    expect(proofs.flatMap(({ titles }) => titles).length).toBeGreaterThan(40);
  });

  it.each(proofs)('finds in $path what it quotes: $titles', ({ path, titles }) => {
    const file = fileURLToPath(new URL(path, docs));
    expect(existsSync(file)).toBe(true);
    const source = readFileSync(file, 'utf8').replaceAll("\\'", "'");
    for (const title of titles) expect(source).toContain(title);
  });
});
