/**
 * Turns the scripts in `lua/` into `lua.ts`, which the library loads; with `--check` it only says whether that is up to date.
 *
 * Each file of `lua/` is one script, and reads as it runs for one lock:
 * - Comments on lines of their own are left out. The first paragraph of the header describes the script in `lua.ts`, and
 *   `-- @order 3` and `-- @locks-per-call 100` there are the properties of `Script`.
 * - `-- @include mint` stands for the text of `lua/parts/mint.lua`, which uses and sets local variables around it.
 * - `local … = KEYS[1], …` and `local … = ARGV[1], …` name all keys and arguments of one lock. First come those that all
 *   locks of a call share, in lines that end in `-- once a call`. The lines above run once a call. Those below run for each
 *   lock: they must return on each way, and must not throw, which would be the end of the other locks of the call.
 *
 * A call may be for several locks: what they share, then the KEYS and ARGV of one after the other. For these the source has
 * the same lines a second time, in a function, and replies with a list. One lock alone is by far the most frequent, and is
 * spared that list and function, which Redis would make anew for each call; except in scripts with `-- @once`, whose long text is
 * there once, in the function.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const folder = new URL('lua/', import.meta.url);
const target = new URL('lua.ts', import.meta.url);
const ONCE_A_CALL = ' -- once a call';
const names = readdirSync(folder).flatMap((file) => (file.endsWith('.lua') ? file.slice(0, -'.lua'.length) : []));
const module = `// Generated from lua/ by generate.mjs (\`npm run lua\`): do not edit.
import type { Script } from './script.js';
${names.sort().map(constantOf).join('')}`;

if (!process.argv.includes('--check')) {
  writeFileSync(target, module);
} else if (readFileSync(target, 'utf8') !== module) {
  console.error('lib/stores/redis/scripts/lua.ts is not made of the files in lua/ as they are: run `npm run lua`.');
  process.exitCode = 1;
}

function constantOf(name) {
  const { source, shared } = scriptOf(name);
  return `
/**
${descriptionOf(name)}
 */
export const ${name.toUpperCase().replaceAll('-', '_')}: Script = {
  name: '${name}',
  order: ${tagOf(name, 'order')},
  locksPerCall: ${tagOf(name, 'locks-per-call', '50')},
  sharedKeys: ${shared.keys},
  sharedArgs: ${shared.args},
  sha: '${createHash('sha1').update(source).digest('hex')}',
  source: \`${source.replace(/[\\`]|\$\{/g, '\\$&')}\`,
};
`;
}

/** The Lua for one lock, preceded by that for several, and how many keys and arguments these share. */
function scriptOf(name) {
  const lines = linesOf(name);
  const start = lines.findIndex((line) => line.includes('KEYS['));
  const end = lines.findLastIndex((line) => /^local .* = (KEYS|ARGV)\[/.test(line)) + 1;
  const named = lines.slice(start, end);
  const body = lines.slice(end);
  const [keys, args] = [namesOf(named, 'KEYS'), namesOf(named, 'ARGV')];
  if (keys.own.length === 0) throw new Error(`${name}.lua names no KEYS: expected \`local lock = KEYS[1]\`.`);
  const each = [
    `local function each(${[...keys.own, ...args.own].join(', ')})`,
    ...body.map((line) => `  ${line}`),
    'end',
  ];
  const several = [
    'local replies = {}',
    `for i = 0, ${keys.shared === 0 ? '#KEYS' : `(#KEYS - ${keys.shared})`} / ${keys.own.length} - 1 do`,
    `  replies[i + 1] = each(${[...valuesOf('KEYS', keys), ...valuesOf('ARGV', args)].join(', ')})`,
    'end',
    'return replies',
  ];
  const common = named.filter(isShared).map((line) => line.slice(0, -ONCE_A_CALL.length));
  const own = named.filter((line) => !isShared(line));
  const areSeveral = `if #KEYS > ${keys.shared + keys.own.length} then`;
  const runs = textOf(name).includes('-- @once')
    ? [
        ...each,
        areSeveral,
        ...several.map(indented),
        'end',
        ...own,
        `return each(${[...keys.own, ...args.own].join(', ')})`,
      ]
    : [areSeveral, ...[...each, ...several].map(indented), 'end', ...own, ...body];
  const source = [...lines.slice(0, start), ...common, ...runs].join('\n');
  return { source, shared: { keys: keys.shared, args: args.shared } };
}

function indented(line) {
  return `  ${line}`;
}

function isShared(line) {
  return line.endsWith(ONCE_A_CALL);
}

/** The lines of a file without its comments, and with what it includes. */
function linesOf(file) {
  return textOf(file).flatMap((line) => {
    const include = /^( *)-- @include (\S+)$/.exec(line);
    if (include) return linesOf(`parts/${include[2]}`).map((included) => include[1] + included);
    if (line.includes('@include'))
      throw new Error(`${file}.lua: expected a line like \`-- @include mint\`, got ${line}.`);
    return /^ *(--|$)/.test(line) ? [] : [line];
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

/** Of the lock with an index: `KEYS[2 * i + 1], KEYS[2 * i + 2]`. */
function valuesOf(list, { shared, own }) {
  return own.map((_, at) => `${list}[${own.length === 1 ? 'i' : `${own.length} * i`} + ${shared + at + 1}]`);
}

function descriptionOf(name) {
  const lines = textOf(name);
  return lines
    .slice(0, lines.indexOf('--'))
    .map((line) => line.replace('--', ' *'))
    .join('\n');
}

function tagOf(name, tag, otherwise) {
  const line = textOf(name).find((text) => text.startsWith(`-- @${tag} `));
  const value = line?.split(' ')[2] ?? otherwise;
  if (value === undefined) throw new Error(`${name}.lua has no ${tag}: expected a line like \`-- @${tag} 3\`.`);
  return value;
}

function textOf(file) {
  return readFileSync(new URL(`${file}.lua`, folder), 'utf8').split('\n');
}
