import { describe, expect, it } from 'vitest';
import { filesIn, read } from './compile.js';

const idsIn = (text: string) => [...text.matchAll(/\bG\d+\b/g)].map(([id]) => id);

const guarantees = read('docs/guarantees.md');
const pages = ['README.md', ...filesIn('docs', '.md')];
const testFiles = filesIn('test', '.ts').filter((path) => path !== 'test/readme/guarantees.test.ts');

/** Ids cited as proofs. The page explains with `G12]` how to run one test: in code, an id is an example. */
const cited = new Set(pages.flatMap((page) => idsIn(read(page).replaceAll(/`[^`\n]+`/g, ''))));

/** An id at the end of the title of an `it` or `it.each`, or of a test of the contract of backends. */
const TITLE_WITH_ID = /(?:\bit|\bproves|\))\(\s*(['"`])(?:\\.|(?!\1).)* \[(G\d+)\]\1[,)]/g;
const titled = testFiles.flatMap((path) => [...read(path).matchAll(TITLE_WITH_ID)].map(([, , id]) => id!));

/** The rows of the tables that have a column "proved by", without the outer bars. */
const rows = guarantees
  .split(/\n(?!\|)/)
  .map((block) => block.split('\n').filter((line) => line.startsWith('|')))
  .filter(([header]) => header !== undefined && /\| proved by +\| what breaks it +\|$/.test(header))
  .flatMap(([, , ...lines]) => lines.map((line) => line.split(/(?<!\\)\|/).slice(1, -1)))
  .map((cells) => cells.map((cell) => cell.trim()));

describe('the ids of guarantees', () => {
  it('docs/guarantees.md says of each promise which tests prove it, by their ids alone, and what breaks it', () => {
    expect(rows.length).toBeGreaterThan(220);
    const incomplete = rows.filter((cells) => cells.includes('') || !/^G\d+(, G\d+)*$/.test(cells.at(-2)!));
    expect(incomplete).toEqual([]);
  });

  it('docs/guarantees.md has a row for each hazard, which cites a test of it', () => {
    const paths = testFiles.filter((path) => path.startsWith('test/hazards/') && path.endsWith('.test.ts'));
    // A test that is only partly simulated is in two files.
    const hazards = new Map<string, string>();
    for (const source of paths.flatMap((path) => read(path).split(/^(?=describe\()/m))) {
      const [, hazard] = /^describe\(['"](H\d+):/.exec(source) ?? [];
      if (hazard) hazards.set(hazard, (hazards.get(hazard) ?? '') + source);
    }
    const unproved = [...hazards].filter(([hazard, source]) => {
      const row = rows.find(([first]) => first!.startsWith(`${hazard}: `));
      return !row || !idsIn(row.at(-2)!).some((id) => source.includes(`[${id}]`));
    });
    expect(hazards.size).toBe(25);
    expect(unproved).toEqual([]);
  });

  it('docs/guarantees.md has a row for each hazard of locks in SQL, and each of those rows cites tests of it', () => {
    const sources = testFiles.filter((path) => /^test\/(sql|mariadb)\//.test(path)).map(read);
    const inTests = sources.flatMap((source) =>
      [...source.matchAll(/describe\(['"](S\d+):/g)].map(([, hazard]) => hazard!),
    );
    // Some have a row for each database.
    const hazards = rows.flatMap((row) => {
      const [, hazard] = /^(S\d+): /.exec(row[0]!) ?? [];
      return hazard === undefined ? [] : [[hazard, idsIn(row.at(-2)!)] as const];
    });
    const names = new Set(hazards.map(([hazard]) => hazard));
    expect([...names]).toEqual(Array.from({ length: 20 }, (_, at) => `S${at + 1}`));
    expect(inTests.filter((hazard) => !names.has(hazard))).toEqual([]);
    const isProved = (ids: readonly string[]) =>
      ids.every((id) => sources.some((source) => source.includes(`[${id}]`)));
    expect(hazards.filter(([, ids]) => !isProved(ids))).toEqual([]);
  });

  it('each id that a page cites is the id of a test', () => {
    expect(cited.size).toBeGreaterThan(200);
    expect([...cited].filter((id) => !titled.includes(id))).toEqual([]);
  });

  it('each id of a test is cited', () => {
    expect(titled.filter((id) => !cited.has(id))).toEqual([]);
  });

  it('no two tests have the same id', () => {
    expect(titled.filter((id, index) => titled.indexOf(id) !== index)).toEqual([]);
  });

  it('an id is in the tests only at the end of the title of an it', () => {
    const elsewhere = testFiles.flatMap((path) => idsIn(read(path).replaceAll(TITLE_WITH_ID, '')));
    expect(elsewhere).toEqual([]);
  });
});
