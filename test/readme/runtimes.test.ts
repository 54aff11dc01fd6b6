import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ONLY_SIMULATED, RUNTIMES, SUITES } from '../runtimes/runtimes.js';
import { read, root } from './compile.js';

const textOf = (file: string) => read(file).replaceAll(/\s+/g, ' ');
const page = textOf('docs/clients.md');

describe.each(Object.entries(RUNTIMES))('on %s', (name, { version, differences }) => {
  it('the version that is tested is the one that docs/clients.md names', () => {
    expect(page.toLowerCase()).toContain(`| ${name} | ${version} |`);
  });

  it('each test that has to fail is there, and docs/clients.md says why', () => {
    const unsaid = differences.filter(({ because }) => !page.toLowerCase().includes(because.toLowerCase()));
    const absent = differences.filter(({ file, title }) => !textOf(`test/${file}`).includes(title));
    expect({ unsaid, absent }).toEqual({ unsaid: [], absent: [] });
  });
});

it('the suites that run on other runtimes exist, and the excluded ones, too', () => {
  const path = (suite: string) => `${root}test/${suite}${suite.includes('/') ? '.test.ts' : ''}`;
  expect([...SUITES, ...ONLY_SIMULATED].filter((suite) => !existsSync(path(suite)))).toEqual([]);
});
