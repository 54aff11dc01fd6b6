import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { resolveOptions } from '../../lib/resolve-options.js';
import { compileLibrary } from '../support/compiled-library.js';
import { brokenFiles, MUTANTS } from './mutants.js';

describe('the mutants of the chaos run', () => {
  it.each(Object.entries(MUTANTS))('%s applies to the library as it is', (name, { edits, options = {} }) => {
    const library = compileLibrary();
    const broken = brokenFiles(name, library);
    expect([...broken.keys()].sort()).toEqual([...new Set(edits.map(({ file }) => file))].sort());
    for (const [file, source] of broken) expect(source).not.toBe(readFileSync(join(library, file), 'utf8'));
    expect(broken.size + Object.keys(options).length).toBeGreaterThan(0);
    const redlock = ['redis://a', 'redis://b', 'redis://c'];
    expect(resolveOptions({ redlock, ...options })).toMatchObject(options);
  });

  it('cannot be applied where their text is not found', () => {
    const other = mkdtempSync(join(tmpdir(), 'mutants-'));
    onTestFinished(() => rmSync(other, { recursive: true }));
    mkdirSync(join(other, 'scripts'));
    writeFileSync(join(other, 'scripts/release.script.js'), 'if holder then');
    expect(() => brokenFiles('release-without-owner-check', other)).toThrow(
      'The mutant release-without-owner-check does not apply: "if holder == owner then" is not in scripts/release.script.js',
    );
  });
});
