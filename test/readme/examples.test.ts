import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { read, root } from './compile.js';

const { version, devDependencies } = JSON.parse(read('package.json')) as {
  version: string;
  devDependencies: Record<string, string>;
};
const numbersOf = (text: string) => text.split('.').map(Number) as [number, number, number];

/** Whether a range like `^1.2.3` allows a version. */
function admits(range: string, version: string): boolean {
  const [major, minor, patch] = numbersOf(range.replace(/^\^/, ''));
  const [itsMajor, itsMinor, itsPatch] = numbersOf(version);
  if (!range.startsWith('^') || major !== itsMajor) return false;
  if (minor !== itsMinor) return major > 0 && minor < itsMinor;
  return patch <= itsPatch;
}

// `npm run check:package` runs them with the packed library, and `npm run test:runtimes` on Bun.
describe.each(readdirSync(`${root}examples`))('examples/%s', (name) => {
  it('takes this version of the library, and the versions of others that it is tested with', () => {
    const manifest = JSON.parse(read(`examples/${name}/package.json`)) as Record<
      'dependencies' | 'devDependencies',
      Record<string, string>
    >;
    const wanted = { ...manifest.dependencies, ...manifest.devDependencies };
    const typescript = devDependencies['@typescript/native']!.replace('npm:typescript@', '');
    const tested: Record<string, string> = { ...devDependencies, typescript, 'nest-redis-lock': version };
    expect(Object.keys(wanted)).toContain('nest-redis-lock');
    const refused = Object.entries(wanted).filter(([name, range]) => !admits(range, tested[name] ?? ''));
    expect(refused).toEqual([]);
  });
});
