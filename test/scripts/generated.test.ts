import { randomUUID } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MAX_PROPOSAL_DISTANCE_US, WIPED } from '../../lib/stores/redis/node/lock-scripts.js';
import { GRANT_TTL_MS, TAKEN } from '../../lib/stores/node/messages.js';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';

const SCRIPTS = fileURLToPath(new URL('../../lib/stores/redis/scripts/', import.meta.url));

/** Runs the generator of a folder in this process. @returns what is wrong, empty if nothing is */
async function generate(folder: string, ...args: string[]): Promise<string> {
  const printed = vi.spyOn(console, 'error').mockImplementation(() => {});
  const { argv } = process;
  let [said, exitCode] = ['', process.exitCode];
  process.argv = [...argv.slice(0, 2), ...args];
  try {
    await import(`${pathToFileURL(join(folder, 'generate.mjs')).href}?${randomUUID()}`);
    said = printed.mock.calls.join();
  } catch (error) {
    return (error as Error).message;
  } finally {
    exitCode = process.exitCode;
    process.argv = argv;
    process.exitCode = undefined;
    printed.mockRestore();
  }
  expect(exitCode).toBe(said === '' ? undefined : 1);
  return said;
}

/** A copy of the scripts and their generator in which a text of one file is replaced. */
function changed(file: string, find: string, put: string): string {
  const copy = mkdtempSync(join(tmpdir(), 'scripts-'));
  onTestFinished(() => rmSync(copy, { recursive: true }));
  for (const part of ['lua', 'lua.ts', 'generate.mjs'])
    cpSync(join(SCRIPTS, part), join(copy, part), { recursive: true });
  const lua = readFileSync(join(copy, file), 'utf8');
  expect(lua).toContain(find);
  writeFileSync(join(copy, file), lua.replace(find, put));
  return copy;
}

describe('The generated module of the scripts', () => {
  it.each([
    ['a script', 'lua/extend.lua', 'ttl) or -1'],
    ['an included part', 'lua/parts/mint.lua', 'counter >= first then'],
  ])('is out of date when %s has changed, until it is generated again', async (_what, file, find) => {
    const copy = changed(file, find, `${find} -- changed`);
    expect(await generate(copy, '--check')).toContain('npm run lua');
    expect([await generate(copy), await generate(copy, '--check')]).toEqual(['', '']);
    expect(readFileSync(join(copy, 'lua.ts'), 'utf8')).toContain(`${find} -- changed`);
  });

  it.each([
    ['names its keys in another order', 'lua/raise-fence.lua', 'KEYS[1], KEYS[2]', 'KEYS[2], KEYS[1]'],
    ['leaves an argument out', 'lua/extend.lua', 'local owner = ARGV[2]', 'local owner = ARGV[3]'],
    ['names no keys', 'lua/extend.lua', 'local lock = KEYS[1]', "local lock = 'lock'"],
    ['has no key of its own', 'lua/acquire.lua', 'KEYS[2]', 'KEYS[2] -- once a call'],
    ['shares a key that does not come first', 'lua/vote.lua', 'KEYS[2], KEYS[3]', 'KEYS[2], KEYS[3] -- once a call'],
    [
      'shares an argument behind others',
      'lua/extend.lua',
      'local owner = ARGV[2]',
      'local owner = ARGV[2]\nlocal x = ARGV[3] -- once a call',
    ],
    ['has another mark for what is shared', 'lua/acquire.lua', '-- once a call\n', '-- once per call\n'],
    ['has no order', 'lua/extend.lua', '-- @order 2', ''],
    ['includes nothing', 'lua/extend.lua', '@include not-a-string', '@include'],
    ['includes a part that is not there', 'lua/extend.lua', '@include not-a-string', '@include nothing'],
  ])('is not generated when a script %s', async (_what, file, find, put) => {
    const copy = changed(file, find, put);
    expect(await generate(copy)).not.toBe('');
    expect(readFileSync(join(copy, 'lua.ts'), 'utf8')).toBe(readFileSync(join(SCRIPTS, 'lua.ts'), 'utf8'));
  });

  it.each([
    ['a script lacks what a part needs', 'lua/extend.lua', 'local owner = ARGV[2]', 'local holder = ARGV[2]', 'owner'],
    ['a script includes a part too early', 'lua/release.lua', 'local us, minted', '', 'us'],
    [
      'a part uses a name that its header lacks',
      'lua/parts/mint.lua',
      'needs  fence, count, us',
      'needs  fence, us',
      'count',
    ],
    [
      'a part does not use what it needs',
      'lua/parts/is-mine.lua',
      'needs  value, owner',
      'needs  value, owner, ttl',
      'ttl',
    ],
    ['a part does not set what it sets', 'lua/parts/fits.lua', 'sets   fits', 'sets   fits, room', 'room'],
  ])('is not generated when %s, and the error names it', async (_what, file, find, put, name) => {
    expect(await generate(changed(file, find, put))).toContain(` ${name}`);
  });

  it('has the constants that the library has', () => {
    const constants = Object.values<Script>(LUA).flatMap(({ source }) => [
      ...source.matchAll(/^ *local ([A-Z_]+) = '?(.*?)'?$/gm),
    ]);
    const values = constants.map(([, name, value]) => `${name} ${value}`);
    expect(new Set(values)).toEqual(
      new Set([
        `GRANT_TTL_MS ${GRANT_TTL_MS}`,
        `MAX_PROPOSAL_DISTANCE_US ${MAX_PROPOSAL_DISTANCE_US}`,
        'LOST_MS 60000',
        `TAKEN ${TAKEN}`,
        `WIPED ${WIPED}`,
        'MAX_TOKEN_LEAD_US 1000',
        'MAX_PLACES 100',
        'MAX_UNKNOWN 1000',
        'PAGE 100',
        'QUEUE_TTL_MS 10000',
        'SILENT_US 2000000',
      ]),
    );
  });
});
