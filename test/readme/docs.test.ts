import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const docs = readdirSync(`${root}docs`).filter((file) => file.endsWith('.md'));
const pages = ['README.md', ...docs.map((file) => `docs/${file}`)];

/** The anchors that the headings of a page make. */
const anchorsOf = (path: string) =>
  [...readFileSync(path, 'utf8').matchAll(/^#+ (.*)$/gm)].map((heading) =>
    heading[1]!
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  );

describe.each(pages)('%s', (page) => {
  it('links only to what is there', () => {
    const text = readFileSync(`${root}${page}`, 'utf8').replaceAll(/^```.*?^```/gms, '');
    const links = [...text.matchAll(/\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)/g)];
    const base = new URL(page, `file://${root}`);
    const broken = links.filter(([, path, anchor]) => {
      const file = fileURLToPath(path ? new URL(path, base) : base);
      return !existsSync(file) || (anchor !== undefined && !anchorsOf(file).includes(anchor));
    });
    expect(broken.map(([link]) => link)).toEqual([]);
  });
});

describe('what is written about import type', () => {
  const advice = pages.flatMap((page) => {
    const prose = readFileSync(`${root}${page}`, 'utf8').replaceAll(/^```.*?^```/gms, '');
    return prose
      .split(/\n(?=- |\n)/)
      .filter((paragraph) => paragraph.includes('`import type`'))
      .map((paragraph) => [page, paragraph.replaceAll(/\s+/g, ' ')] as const);
  });

  it('stands in the README and beside the keys', () => {
    expect(advice.map(([page]) => page)).toEqual(['README.md', 'docs/handlers.md']);
  });

  // A class that is imported as a type is gone at run time: no pipe validates by it, nothing is injected by it.
  it.each(advice)(
    'is in %s that it is for interfaces and type aliases, and that classes are imported as values',
    (_, text) => {
      expect(text).toMatch(/interfaces and type aliases[^.;]* `import type`/);
      expect(text).toMatch(/classes[^.;]* as values/);
    },
  );
});

describe('the README', () => {
  it('links to the test of every hazard', () => {
    const hazards = readdirSync(`${root}test/hazards`).filter((file) => /^h\d\d-/.test(file));
    expect(hazards).toHaveLength(25);
    const readme = readFileSync(`${root}README.md`, 'utf8');
    for (const hazard of hazards) expect(readme).toContain(`(test/hazards/${hazard})`);
  });

  it('can be read in five minutes: 1 400 words beside code and tables', () => {
    const prose = readFileSync(`${root}README.md`, 'utf8')
      .replaceAll(/^```.*?^```/gms, '')
      .replaceAll(/^\|.*$/gm, '')
      .replaceAll(/\]\([^)]*\)/g, '');
    expect(prose.split(/\s+/).length).toBeLessThan(1_400);
  });
});
