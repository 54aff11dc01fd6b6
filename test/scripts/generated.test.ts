import { createHash, randomUUID } from 'node:crypto';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MAX_PROPOSAL_DISTANCE_US, WIPED } from '../../lib/stores/redis/node/lock-scripts.js';
import { GRANT_TTL_MS, TAKEN } from '../../lib/stores/node/messages.js';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import { scriptOf, type Script, type ScriptParts } from '../../lib/stores/redis/scripts/script.js';

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

/** A copy of the scripts and their generator. */
function copied(): string {
  const copy = mkdtempSync(join(tmpdir(), 'scripts-'));
  onTestFinished(() => rmSync(copy, { recursive: true }));
  for (const part of ['lua', 'lua.ts', 'generate.mjs'])
    cpSync(join(SCRIPTS, part), join(copy, part), { recursive: true });
  return copy;
}

/** A copy in which a text of one file is replaced. */
function changed(file: string, find: string, put: string): string {
  const copy = copied();
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

  it('has each script once, by its name, with the SHA-1 of its source', () => {
    const scripts = Object.values<Script>(LUA);
    const files = readdirSync(join(SCRIPTS, 'lua')).filter((file) => file.endsWith('.lua'));
    expect(scripts.map(({ name }) => `${name}.lua`).sort()).toEqual(files.sort());
    const hashes = scripts.map(({ source }) => createHash('sha1').update(source).digest('hex'));
    expect(scripts.map(({ sha }) => sha)).toEqual(hashes);
    expect(new Set(hashes).size).toBe(scripts.length);
  });

  it('says in which order they are sent, for how many locks, and how many keys and arguments those share', () => {
    const said = Object.values<Script>(LUA).map(({ name, order, locksPerCall, sharedKeys, sharedArgs }) => [
      name,
      order,
      locksPerCall,
      sharedKeys,
      sharedArgs,
    ]);
    expect(said).toEqual([
      ['acquire', 3, 50, 1, 1],
      ['acquire-in-order', 3, 50, 1, 1],
      ['acquire-together', 3, 50, 1, 1],
      ['admit', 0, 50, 0, 0],
      ['downgrade', 1, 50, 1, 0],
      ['extend', 2, 100, 0, 1],
      ['extend-and-report', 2, 100, 0, 1],
      ['extend-together', 2, 100, 0, 1],
      ['force-release', 1, 50, 1, 1],
      ['inspect', 4, 5, 0, 0],
      ['keep', 1, 50, 0, 0],
      ['raise-fence', 2, 50, 0, 0],
      ['release', 1, 50, 1, 0],
      ['restore', 2, 100, 0, 1],
      ['transfer', 1, 50, 1, 0],
      ['turn', 3, 50, 1, 1],
      ['vote', 3, 50, 1, 2],
      ['vote-or-queue', 3, 50, 1, 2],
      ['withdraw', 1, 50, 1, 0],
    ]);
  });

  it('takes what is shared once, then the keys and arguments of one lock after the other', async () => {
    const copy = copied();
    const lua = [
      '-- A sample.',
      '--',
      '-- @order 9',
      'local calls = 0',
      'local fence = KEYS[1] -- once a call',
      'local lock, queue = KEYS[2], KEYS[3]',
      'local epoch, fair = ARGV[1], ARGV[2] -- once a call',
      'local owner = ARGV[3]',
      'return lock .. queue .. owner .. fence .. epoch .. fair',
    ];
    writeFileSync(join(copy, 'lua', 'sample.lua'), lua.join('\n'));
    expect(await generate(copy)).toBe('');
    const [, parts] = /export const SAMPLE = scriptOf\((.*?)\);\n/s.exec(readFileSync(join(copy, 'lua.ts'), 'utf8'))!;
    const sample = scriptOf(runInNewContext(`(${parts})`) as ScriptParts);
    expect(sample).toMatchObject({ name: 'sample', order: 9, locksPerCall: 50, sharedKeys: 1, sharedArgs: 2 });
    expect(sample.source.split('\n')).toEqual([
      'local calls = 0',
      'local fence = KEYS[1]',
      'local epoch, fair = ARGV[1], ARGV[2]',
      'if #KEYS > 3 then',
      'local function each(lock, queue, owner)',
      'return lock .. queue .. owner .. fence .. epoch .. fair',
      'end',
      'local replies = {}',
      'for i = 0, (#KEYS - 1) / 2 - 1 do',
      '  replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[1 * i + 3])',
      'end',
      'return replies',
      'end',
      'local lock, queue, owner = KEYS[2], KEYS[3], ARGV[3]',
      'return lock .. queue .. owner .. fence .. epoch .. fair',
    ]);
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
