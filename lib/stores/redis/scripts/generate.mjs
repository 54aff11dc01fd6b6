/**
 * Generates `lua.ts`, which the library loads, from the files in `lua/`. With `--check` it only reports whether `lua.ts` is up to
 * date. `scriptOf` assembles the scripts when the library is loaded.
 *
 * Each file of `lua/` is one script, written for one lock:
 * - Comments on lines of their own are left out. The first paragraph of the header describes the script in `lua.ts`. The tags
 *   `-- @order 3`, `-- @locks-per-call 100` and `-- @once` set its properties: see `ScriptParts`.
 * - `-- @include mint` inserts the text of `lua/parts/mint.lua`, which shares the local variables around it. The header of a part
 *   lists the variables that it `needs` and those that it `sets`. The generator refuses a script that uses a name which nothing
 *   before it has declared or set.
 * - `local … = KEYS[1], …` and `local … = ARGV[1], …` name all keys and arguments of one lock. Those that all locks of a call
 *   share come first, in lines that end in `-- once a call`. The lines above run once a call. The lines below run for each
 *   lock: every path must return, and none may throw, since an error would end the whole call.
 *
 * A call for several locks has the shared KEYS and ARGV first, then the KEYS and ARGV of one lock after the other.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const folder = new URL('lua/', import.meta.url);
const target = new URL('lua.ts', import.meta.url);
const INCLUDE = /^ *-- @include (\S+)$/;
const ONCE_A_CALL = ' -- once a call';

const KEYWORDS =
  'and break do else elseif end false for function if in local nil not or repeat return then true until while';
const BUILT_IN = 'ARGV KEYS ipairs math pairs redis string table tonumber tostring type';
const KNOWN_EVERYWHERE = new Set(`${KEYWORDS} ${BUILT_IN}`.split(' '));

/** The text of each part, by name. A part comes after the parts that it includes. */
const parts = new Map();
const names = readdirSync(folder).flatMap((file) => (file.endsWith('.lua') ? file.slice(0, -'.lua'.length) : []));
const scripts = names.sort().map(scriptOf);
const module = `// Generated from lua/ by generate.mjs (\`npm run lua\`): do not edit.
import { scriptOf } from './script.js';

${[...parts].map(([name, text]) => `const ${constantOf(name)} = ${text};\n\n`).join('')}${scripts.join('\n')}`;

if (!process.argv.includes('--check')) {
  writeFileSync(target, module);
} else if (readFileSync(target, 'utf8') !== module) {
  console.error('lib/stores/redis/scripts/lua.ts does not match the files in lua/: run `npm run lua`.');
  process.exitCode = 1;
}

function scriptOf(name) {
  checkNames(name);
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

/** Checks that a file uses only names that are declared, set or needed before, and that the header of a part is right. */
function checkNames(file) {
  const { needs, sets } = variablesOf(file);
  const known = new Set([...KNOWN_EVERYWHERE, ...needs]);
  const used = new Set();
  const use = (name, where) => {
    if (!known.has(name)) throw new Error(`${file}.lua: ${where} needs ${name}, which nothing before it sets.`);
    used.add(name);
  };
  for (const line of readLines(file)) {
    const [, part] = INCLUDE.exec(line) ?? [];
    const code = line.replace(/'[^']*'/g, '').replace(/--.*/, '');
    for (const [, names] of code.matchAll(/\b(?:local|for) (?:function )?(\w+(?:, \w+)*)/g))
      for (const name of names.split(', ')) known.add(name);
    const variables = part ? variablesOf(`parts/${part}`) : { needs: namesIn(code), sets: [] };
    for (const name of variables.needs) use(name, part ? `${part}.lua` : `"${line.trim()}"`);
    for (const name of variables.sets) known.add(name);
  }
  const stale = [...needs.filter((name) => !used.has(name)), ...sets.filter((name) => !known.has(name))];
  if (stale.length > 0)
    throw new Error(`${file}.lua neither uses nor sets ${stale.join(', ')}: remove that from its header.`);
}

/** The variables that the header of a part says it needs and sets. */
function variablesOf(file) {
  const variables = { needs: [], sets: [] };
  let list;
  for (const line of readLines(file)) {
    const [, head, names] = /^--(?: (needs|sets) +|        )([\w.]+(?:, [\w.]+)*)(?:  .*)?$/.exec(line) ?? [];
    if (head) list = variables[head];
    else if (!line.startsWith('--  ')) list = undefined;
    if (names) list?.push(...names.split(', ').filter((name) => !name.includes('.')));
  }
  return variables;
}

/** The variables that a line of Lua names: without fields, methods and the keys of tables. */
function namesIn(code) {
  return code.replace(/([{,] ?)\w+ = /g, '$1').match(/(?<![\w.:])[A-Za-z_]\w*/g) ?? [];
}

function isShared(line) {
  return line.endsWith(ONCE_A_CALL);
}

/** The lines of a file without its comments, as they appear in the template string. Reads the included parts as well. */
function linesOf(file) {
  return readLines(file).flatMap((line) => {
    const [, part] = INCLUDE.exec(line) ?? [];
    if (part) {
      if (!parts.has(part)) parts.set(part, partOf(part));
      return `${line.slice(0, line.indexOf('-'))}\${${constantOf(part)}}`;
    }
    if (line.includes('@include'))
      throw new Error(`${file}.lua: expected a line like \`-- @include mint\`, got ${line}.`);
    return /^ *(--|$)/.test(line) ? [] : line.replace(/[\\`]|\$\{/g, '\\$&');
  });
}

function partOf(name) {
  checkNames(`parts/${name}`);
  return textOf(linesOf(`parts/${name}`));
}

/** The local variables for `KEYS[1], KEYS[2], …`: the number of shared ones, and the names of the others. */
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
