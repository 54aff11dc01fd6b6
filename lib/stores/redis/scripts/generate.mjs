/**
 * Turns the files in `lua/` into `lua.ts`, which the library loads; with `--check` it only says whether that is up to date. It
 * reads the files, and `scriptOf` puts the scripts together when the library is loaded.
 *
 * Each file of `lua/` is one script, and reads as it runs for one lock:
 * - Comments on lines of their own are left out. The first paragraph of the header describes the script in `lua.ts`, and
 *   `-- @order 3`, `-- @locks-per-call 100` and `-- @once` there are its properties: see `ScriptParts`.
 * - `-- @include mint` stands for the text of `lua/parts/mint.lua`, which uses and sets local variables around it.
 * - `local … = KEYS[1], …` and `local … = ARGV[1], …` name all keys and arguments of one lock. First come those that all
 *   locks of a call share, in lines that end in `-- once a call`. The lines above run once a call. Those below run for each
 *   lock: they must return on each way, and must not throw, which would be the end of the other locks of the call.
 *
 * A call may be for several locks: what they share, then the KEYS and ARGV of one after the other.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const folder = new URL('lua/', import.meta.url);
const target = new URL('lua.ts', import.meta.url);
const ONCE_A_CALL = ' -- once a call';

/** The text of each part, behind those that it includes. */
const parts = new Map();
const names = readdirSync(folder).flatMap((file) => (file.endsWith('.lua') ? file.slice(0, -'.lua'.length) : []));
const scripts = names.sort().map(scriptOf);
const module = `// Generated from lua/ by generate.mjs (\`npm run lua\`): do not edit.
import { scriptOf } from './script.js';

${[...parts].map(([name, text]) => `const ${constantOf(name)} = ${text};\n\n`).join('')}${scripts.join('\n')}`;

if (!process.argv.includes('--check')) {
  writeFileSync(target, module);
} else if (readFileSync(target, 'utf8') !== module) {
  console.error('lib/stores/redis/scripts/lua.ts is not made of the files in lua/ as they are: run `npm run lua`.');
  process.exitCode = 1;
}

function scriptOf(name) {
  const lines = linesOf(name);
  const start = lines.findIndex((line) => line.includes('KEYS['));
  const end = lines.findLastIndex((line) => /^local .* = (KEYS|ARGV)\[/.test(line)) + 1;
  const named = lines.slice(start, end);
  const [keys, args] = [namesOf(named, 'KEYS'), namesOf(named, 'ARGV')];
  if (keys.own.length === 0) throw new Error(`${name}.lua names no KEYS: expected \`local lock = KEYS[1]\`.`);
  const shared = named.filter(isShared).map((line) => line.slice(0, -ONCE_A_CALL.length));
  return `/**
${descriptionOf(name)}
 */
export const ${constantOf(name)} = scriptOf({
  name: '${name}',
  order: ${tagOf(name, 'order')},
  locksPerCall: ${tagOf(name, 'locks-per-call', '50')},
  sharedKeys: ${keys.shared},
  sharedArgs: ${args.shared},${readLines(name).includes('-- @once') ? '\n  isLong: true,' : ''}
  keys: [${keys.own.map((key) => `'${key}'`).join(', ')}],
  args: [${args.own.map((arg) => `'${arg}'`).join(', ')}],
  head: ${textOf([...lines.slice(0, start), ...shared])},
  body: ${textOf(lines.slice(end))},
});
`;
}

function isShared(line) {
  return line.endsWith(ONCE_A_CALL);
}

/** The lines of a file without its comments, as the template string has them. What it includes is read, too. */
function linesOf(file) {
  return readLines(file).flatMap((line) => {
    const [, indent, part] = /^( *)-- @include (\S+)$/.exec(line) ?? [];
    if (part) {
      if (!parts.has(part)) parts.set(part, textOf(linesOf(`parts/${part}`)));
      return `${indent}\${${constantOf(part)}}`;
    }
    if (line.includes('@include'))
      throw new Error(`${file}.lua: expected a line like \`-- @include mint\`, got ${line}.`);
    return /^ *(--|$)/.test(line) ? [] : line.replace(/[\\`]|\$\{/g, '\\$&');
  });
}

/** The names that stand for `KEYS[1], KEYS[2], …`: how many of them are shared, and those of each lock. */
function namesOf(lines, list) {
  const all = lines.filter((line) => line.includes(`${list}[`));
  const shared = all.filter(isShared).length;
  if (!all.slice(0, shared).every(isShared)) throw new Error(`Expected the shared ${list} before the others.`);
  const found = all.map((line) => /^local (.+) = (.+?)( -- once a call)?$/.exec(line));
  const values = found.map(([, , right]) => right).join(', ');
  const names = found.map(([, left]) => left.split(', '));
  const expected = names.flat().map((_, index) => `${list}[${index + 1}]`);
  if (values !== expected.join(', ')) throw new Error(`Expected ${names.join(', ')} to be ${expected}, got ${values}.`);
  return { shared: names.slice(0, shared).flat().length, own: names.slice(shared).flat() };
}

function descriptionOf(name) {
  const lines = readLines(name);
  return lines
    .slice(0, lines.indexOf('--'))
    .map((line) => line.replace('--', ' *'))
    .join('\n');
}

function tagOf(name, tag, otherwise) {
  const line = readLines(name).find((text) => text.startsWith(`-- @${tag} `));
  const value = line?.split(' ')[2] ?? otherwise;
  if (value === undefined) throw new Error(`${name}.lua has no ${tag}: expected a line like \`-- @${tag} 3\`.`);
  return value;
}

function constantOf(name) {
  return name.toUpperCase().replaceAll('-', '_');
}

function textOf(lines) {
  return `\`${lines.join('\n')}\``;
}

function readLines(file) {
  return readFileSync(new URL(`${file}.lua`, folder), 'utf8').split('\n');
}
