import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RedisServer } from '../../support/redis-server.js';
import { compareRandomSteps, Comparison, STEPS, type RealServers } from './comparison.js';
import { CHANNEL } from './random-steps.js';

/** The features of Lua that the scripts of the library use, and might use. */
const OF_LUA = [
  // The false values: nil and false only; the right side is not evaluated unless it matters.
  'return {0 and 1, "" and 2, nil or 3, false or 4, not nil, not 0}',
  'local none = nil return none and none.field',
  'local none = nil return none ~= nil and #none > 0',
  // At the end of a list all results count, elsewhere only one.
  'return {string.match("a1", "(%a)(%d)"), string.match("b2", "(%a)(%d)")}',
  'local a, b, c = string.match("a1", "(%a)(%d)") return {a, b, c == nil}',
  'local a, b = 1, 2 a, b = b, a return {a, b}',
  // A local variable hides another one from its own line on.
  'local a = 1 local a = a + 1 if true then local a = 9 end return a',
  'local sum = 0 for at = 3, 1, -1 do sum = sum * 10 + at end return sum',
  'local t = {} for at, value in ipairs({5, 6, nil, 8}) do t[at] = value end return t',
  'local n = 0 repeat local last = n n = n + 1 until last == 3 return n',
  'local function twice(n) return n * 2 end return twice(twice(2))',
  'return {"10" + 5, "0x10" * 1, " 7 " - 0}',
  'return {1 .. "", 0.1 .. "", 1e15 .. "", 1700000000123456 .. ""}',
  'return string.format("%016.0f|%010d|%s|%.0f|%.0f", 12, -3, "x", 0.5, 1.5)',
  'return {string.sub("abc", 2), string.sub("abc", -2, -2), string.sub("abc", 0), string.sub("abc", 3, 2)}',
  'return {string.match("x@12+", "^(.+)@(%d+)[+=]?$")}',
  'return {string.match("a b c", "^(.-) (.+)$")}',
  'return {string.find("WRONGTYPE x", "^WRONGTYPE"), string.find("x", "y")}',
  'return {string.find("a1 b2", "(%a)(%d)", 2), string.find("a b", "^b", 3), string.find("a b", "^b", 2) == nil}',
  'local t = {1} table.insert(t, 2) return t',
  'return {table.concat({"a", 1, "b"}, " "), table.concat({}, " "), table.concat({"a", "b"})}',
  'return {tonumber("12"), tonumber("1x") == nil, tonumber("1e3"), tostring(nil), tonumber("")}',
  'return 1 + nil',
  'return nil .. ""',
  'return 1 < "2"',
  'local none = nil return none.field',
  'return string.match(nil, "x")',
];

const connect = ({ port }: RedisServer) => new Redis(port, '127.0.0.1', { protocol: 2 });
let servers: RedisServer[];
let alone: RealServers;
let replicated: RealServers;

beforeAll(async () => {
  servers = [await RedisServer.start(), await RedisServer.start()];
  servers.push(await RedisServer.start({ args: ['--replicaof', '127.0.0.1', String(servers[1]!.port)] }));
  const [single, primary, replica] = servers.map(connect) as [Redis, Redis, Redis];
  alone = { servers: [single], listener: single.duplicate(), replicated: async () => {} };
  const wait = async () => expect(await primary.wait(1, 10_000)).toBe(1);
  replicated = { servers: [primary, replica], listener: replica.duplicate(), replicated: wait };
  for (const { listener } of [alone, replicated]) await listener.subscribe(CHANNEL);
});
afterAll(async () => {
  for (const each of [alone, replicated]) for (const client of [...each.servers, each.listener]) client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
});

describe('the simulated Redis', () => {
  it(
    `answers ${STEPS} random commands and scripts like a real one, and has the same keys after each [G251]`,
    { timeout: 300_000 + 10 * STEPS },
    () => compareRandomSteps(alone, STEPS),
  );

  it(
    `has the same keys on a replica as a real one after each of ${STEPS / 4} steps, and the replica gets and refuses the same`,
    { timeout: 300_000 + 5 * STEPS },
    () => compareRandomSteps(replicated, STEPS / 4),
  );

  it('runs Lua as a real one does', async () => {
    const comparison = await Comparison.begin(alone);
    for (const source of OF_LUA) await comparison.run({ title: source, args: ['EVAL', source, '0'] });
  });

  it.each([
    ['\nglobal = 1', 'the global variable global, in line 2'],
    ['return os.time()', 'os.time, in line 1'],
    ['for key in pairs({}) do end', 'a loop over anything but ipairs, in line 1'],
    ['return {[1] = 2}', 'a table with fields of other names, in line 1'],
    ['return 5 % 2', '%, in line 1'],
    ...['()', '%1', '%bxy', '[a'].map((pattern) => [`return string.match("x", "${pattern}")`, '']),
  ])('refuses what no script uses of Lua: %s', async (source, what) => {
    const { last } = await Comparison.begin(alone);
    expect(() => last.execute(['EVAL', source!, '0'])).toThrow(`The simulation does not know ${what}`);
  });

  it('fails on a difference that a step makes', async () => {
    const comparison = await Comparison.begin(alone);
    comparison.last.data.change('lock:{a}', { value: 'one that the real server does not have' });
    await expect(comparison.run({ title: 'GET', args: ['GET', 'lock:{a}'] })).rejects.toThrow();
  });
});
