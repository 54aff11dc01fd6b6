import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(root, 'docs/scale.md'), 'utf8');

/** The rows of all tables in a text, each as the texts of its cells. */
const rowsOf = (text: string) =>
  text
    .split('\n')
    .filter((line) => line.startsWith('|') && !/^[|\s:-]+$/.test(line))
    .map((line) => line.split('|').map((cell) => cell.trim()));

it('the page on scale shows what bench/scale.mjs computes', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'bench/scale.mjs')]);
  const section = page.split('<!-- computed -->')[1]!;
  expect(rowsOf(stdout).length).toBeGreaterThan(30);
  expect(rowsOf(section)).toEqual(rowsOf(stdout));
});
