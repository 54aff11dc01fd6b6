import { describe, expect, it } from 'vitest';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { compile } from '../simulation/lua/compile.js';
import { compare, type Scripts } from './crowd-comparison.js';

const SEQUENCES = Number(process.env.CROWD_SEQUENCES ?? 120);
const SEED = Number(process.env.CROWD_SEED ?? 1);

/** The scripts with a text of them replaced in each that has it. */
function broken(find: string, put: string): Scripts {
  let count = 0;
  const scripts = Object.entries<Script>(LUA).map(([name, script]) => {
    const source = script.source.replaceAll(find, put);
    if (source !== script.source) count++;
    compile(source); // what is broken is not the language
    return [name, { ...script, source }];
  });
  if (count === 0) throw new Error(`No script has ${find}`);
  return Object.fromEntries(scripts) as Scripts;
}

const MUTANTS: [what: string, find: string, put: string][] = [
  [
    'the place of whoever is served stays in the queue',
    "is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)",
    '1',
  ],
  [
    'those behind a place that does not fit are served',
    'if next_entry and not kind and passed_over < MOST_UNKNOWN then',
    'if next_entry and (not kind or (crowd and kind ~= crowd.kind)) and passed_over < MOST_UNKNOWN then',
  ],
  ['those whose time is over count', 'local is_live = tonumber(finish) >= now', 'local is_live = true'],
  ['an extension shortens the key', 'crowd.last - math.floor(us / 1000)', 'crowd.first - math.floor(us / 1000)'],
  [
    'its own limit counts, and not the smallest',
    'crowd.used + weight <= math.min(most, crowd.smallest)',
    'crowd.used + weight <= tonumber(most)',
  ],
  [
    'the smallest limit counts, and not its own',
    'crowd.used + weight <= math.min(most, crowd.smallest)',
    'crowd.used + weight <= crowd.smallest',
  ],
  [
    'each reader has a token of its own',
    'crowd.is_changed = true\n',
    "crowd.is_changed = true if crowd.kind == 's' then crowd.head = '~s@' .. string.format('%016.0f', us) end\n",
  ],
  [
    'a release of one of several serves nobody',
    "if head[1] or (owner == '' and not crowd) then",
    "if head[1] and owner ~= '' or (owner == '' and not crowd) then",
  ],
  [
    'a place that is given up lets nobody in',
    'gave = left or 0\n',
    'gave = left or 0 if gave == 0 then return 0 end\n',
  ],
  ['others are granted though somebody waits', 'if head[1] or not fits then break end', 'if not fits then break end'],
  ['the asker overtakes those who wait', 'and not holder and not is_blocked then', 'and not holder then'],
  ['readers join those who hold permits', "kind == crowd.kind and (kind == 's'", "(kind == 's'"],
  ['a grant to a dead process stands', 'if is_silent then\n', 'if false then\n'],
  ['whoever is taken out by force stays', 'local leaves, renews = from, {}', "local leaves, renews = '', {}"],
  [
    'the run of those who fit ends with the first',
    'if is_own then asking.is_granted = true end',
    'if is_own then asking.is_granted = true end break',
  ],
];

describe('the scripts of a lock that several may hold', () => {
  it('grant it to those whom a model of one lock grants it to, in its order, and tell them so, after any sequence of steps [G850]', () => {
    compare(SEQUENCES, SEED);
  });

  it.each(MUTANTS)('are compared so that this is found: %s', (_what, find, put) => {
    expect(() => compare(400, SEED, broken(find, put))).toThrow('CROWD_SEED');
  });
});
