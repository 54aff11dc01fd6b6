import { describe, expect, it } from 'vitest';
import * as scripts from '../../../lib/stores/redis/scripts/lua.js';
import { compile } from './compile.js';
import { Multi, Table, type LuaValue } from './values.js';

const nothing = { call: () => undefined, pcall: () => undefined };

/** What a script returns; a list of it where it returns a table. */
function run(source: string, args: readonly LuaValue[] = []): unknown {
  const plain = (value: LuaValue | Multi): unknown => {
    if (value instanceof Multi) return value.values.map(plain);
    if (!(value instanceof Table)) return value;
    return Array.from({ length: value.length }, (_, at) => plain(value.get(at + 1)));
  };
  return plain(compile(source)(nothing, new Table(), new Table(args)));
}

describe('Lua, compiled to JavaScript', () => {
  it.each(Object.entries(scripts))('%s of the library compiles', (_name, { source }) => {
    expect(compile(source)).toBeTypeOf('function');
  });

  it.each([
    // What is false: nil and false, and nothing else.
    ['return {0 and 1, "" and 2, nil or 3, false or 4, not nil, not 0}', [1, 2, 3, 4, true, false]],
    // The right side is not looked at unless it matters.
    ['local none = nil return none and none.field', undefined],
    ['local none = nil return none ~= nil and #none > 0', false],
    // Several results are all taken at the end of a list, and one elsewhere.
    ['return {string.match("a1", "(%a)(%d)"), string.match("b2", "(%a)(%d)")}', ['a', 'b', '2']],
    ['local a, b, c = string.match("a1", "(%a)(%d)") return {a, b, c == nil}', ['a', '1', true]],
    ['local a, b = 1, 2 a, b = b, a return {a, b}', [2, 1]],
    // A local variable hides another one from its own line on.
    ['local a = 1 local a = a + 1 if true then local a = 9 end return a', 2],
    ['local sum = 0 for at = 3, 1, -1 do sum = sum * 10 + at end return sum', 321],
    ['local t = {} for at, value in ipairs({5, 6, nil, 8}) do t[at] = value end return t', [5, 6]],
    ['local n = 0 repeat local last = n n = n + 1 until last == 3 return n', 4],
    ['local function twice(n) return n * 2 end return twice(twice(2))', 8],
    ['local function last(...) local a, b = ... return {b, a, ...} end return last(1, 2)', [2, 1, 1, 2]],
    ['local all = {double = function(n) return n * 2 end} return all.double(4)', 8],
    ['local redis = {call = redis.call, pcall = redis.pcall} return redis.call("GET", "x") == nil', true],
  ])('runs %s', (source, expected) => {
    expect(run(source)).toEqual(expected);
  });

  it.each([
    ['return {"10" + 5, "0x10" * 1, " 7 " - 0}', [15, 16, 7]],
    ['return {1 .. "", 0.1 .. "", 1e15 .. "", 1700000000123456 .. ""}', ['1', '0.1', '1e+15', '1.7000000001235e+15']],
    ['return string.format("%016.0f|%010d|%s|%.0f|%.0f", 12, -3, "x", 0.5, 1.5)', '0000000000000012|-000000003|x|0|2'],
    [
      'return {string.sub("abc", 2), string.sub("abc", -2, -2), string.sub("abc", 0), string.sub("abc", 3, 2)}',
      ['bc', 'b', 'abc', ''],
    ],
    ['return {string.match("x@12+", "^(.+)@(%d+)[+=]?$")}', ['x', '12']],
    ['return {string.match("a b c", "^(.-) (.+)$")}', ['a', 'b c']],
    ['return {string.find("WRONGTYPE x", "^WRONGTYPE"), string.find("x", "y")}', [1]],
    [
      'return {string.find("a1 b2", "(%a)(%d)", 2), string.find("a b", "^b", 3), string.find("a b", "^b", 2) == nil}',
      [4, 3, true],
    ],
    ['local t = {1} table.insert(t, 2) return t', [1, 2]],
    ['return {table.concat({"a", 1, "b"}, " "), table.concat({}, " "), table.concat({"a", "b"})}', ['a 1 b', '', 'ab']],
    ['return {string.gsub("a*[b]", "[%*%?%[%]\\\\]", "\\\\%0")}', ['a\\*\\[b\\]', 3]],
    [
      'return {tonumber("12"), tonumber(""), tonumber("1x") == nil, tonumber("1e3"), tostring(nil)}',
      [12, undefined, true, 1_000, 'nil'],
    ],
  ])('has the library of Lua: %s', (source, expected) => {
    expect(run(source)).toEqual(expected);
  });

  it.each([
    ['return 1 + nil', 'attempt to perform arithmetic on a nil value'],
    ['return nil .. ""', 'attempt to concatenate a nil value'],
    ['return 1 < "2"', 'attempt to compare number with string'],
    ['local none = nil return none.field', 'attempt to index a nil value'],
    ['return string.match(nil, "x")', "bad argument to 'match'"],
  ])('ends %s with an error of Lua', (source, message) => {
    expect(() => run(source)).toThrow(message);
  });

  it.each([
    ['global = 1', 'the global variable global, in line 1'],
    ['return os.time()', 'os.time, in line 1'],
    ['\nfor key in pairs({}) do end', 'a loop over anything but ipairs, in line 2'],
    ['return {[1] = 2}', 'a table with fields of other names, in line 1'],
    ['return 5 % 2', '%, in line 1'],
  ])('refuses what no script uses when it compiles: %s', (source, what) => {
    expect(() => compile(source)).toThrow(`The simulation does not know ${what}`);
  });

  it.each(['()', '%1', '%bxy', '[a'])('refuses the pattern %s', (pattern) => {
    expect(() => run(`return string.match("x", "${pattern}")`)).toThrow('The simulation does not know');
  });
});
