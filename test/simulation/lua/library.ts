import {
  LuaError,
  Multi,
  numberOf,
  Table,
  textOf,
  typeOf,
  type LuaFunction,
  type LuaValue,
  type RedisOfScripts,
} from './values.js';

/**
 * The functions that compiled scripts call: operators whose operands can have the wrong type, and the functions of Lua
 * that they use.
 */

export function toNumber(value: LuaValue): number {
  const number = numberOf(value);
  if (number === undefined) throw new LuaError(`attempt to perform arithmetic on a ${typeOf(value)} value`);
  return number;
}

export function toText(value: LuaValue): string {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return textOf(value);
  throw new LuaError(`attempt to concatenate a ${typeOf(value)} value`);
}

/** Texts by bytes, as in the locale C. */
export function less(a: LuaValue, b: LuaValue): boolean {
  if (typeof a === 'number' && typeof b === 'number') return a < b;
  if (typeof a === 'string' && typeof b === 'string') return a < b;
  throw new LuaError(`attempt to compare ${typeOf(a)} with ${typeOf(b)}`);
}

export function lessOrEqual(a: LuaValue, b: LuaValue): boolean {
  if (typeof a === 'number' && typeof b === 'number') return a <= b;
  if (typeof a === 'string' && typeof b === 'string') return a <= b;
  throw new LuaError(`attempt to compare ${typeOf(a)} with ${typeOf(b)}`);
}

export const greater = (a: LuaValue, b: LuaValue): boolean => less(b, a);
export const greaterOrEqual = (a: LuaValue, b: LuaValue): boolean => lessOrEqual(b, a);

export function lengthOf(value: LuaValue): number {
  if (typeof value === 'string' || value instanceof Table) return value.length;
  throw new LuaError(`attempt to get length of a ${typeOf(value)} value`);
}

export function index(value: LuaValue, key: LuaValue): LuaValue {
  if (value instanceof Table) return value.get(key);
  throw new LuaError(`attempt to index a ${typeOf(value)} value`);
}

export function setIndex(target: LuaValue, key: LuaValue, value: LuaValue): void {
  if (!(target instanceof Table)) throw new LuaError(`attempt to index a ${typeOf(target)} value`);
  target.set(key, value);
}

export function call(value: LuaValue, args: readonly LuaValue[]): LuaValue | Multi {
  if (typeof value !== 'function') throw new LuaError(`attempt to call a ${typeOf(value)} value`);
  return value(...args);
}

/** `redis`, as a value. Errors of the functions that it calls name no line. */
export function redisTable(redis: RedisOfScripts): Table {
  return new Table([], { call: (...args) => redis.call(0, args), pcall: (...args) => redis.pcall(0, args) });
}

export const first = (result: LuaValue | Multi): LuaValue => (result instanceof Multi ? result.values[0] : result);
export const all = (result: LuaValue | Multi): readonly LuaValue[] =>
  result instanceof Multi ? result.values : [result];

/** The results of a function, in any number. */
export const results = (values: readonly LuaValue[]): Multi => new Multi(values);

function textArgument(value: LuaValue, name: string): string {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return textOf(value);
  throw new LuaError(`bad argument to '${name}' (string expected, got ${typeOf(value)})`);
}

function numberArgument(value: LuaValue, name: string): number {
  const number = numberOf(value);
  if (number === undefined) throw new LuaError(`bad argument to '${name}' (number expected, got ${typeOf(value)})`);
  return number;
}

export const globals: Readonly<Record<string, LuaFunction>> = {
  type: (value) => typeOf(value),
  tonumber: (value) => numberOf(value),
  tostring: (value) => (typeof value === 'string' ? value : typeof value === 'number' ? textOf(value) : nameOf(value)),
};

function nameOf(value: Exclude<LuaValue, string | number>): string {
  return typeof value === 'boolean' ? String(value) : typeOf(value);
}

export const math: Readonly<Record<string, LuaFunction>> = {
  abs: (value) => Math.abs(numberArgument(value, 'abs')),
  floor: (value) => Math.floor(numberArgument(value, 'floor')),
  max: (...values) => Math.max(...values.map((value) => numberArgument(value, 'max'))),
  min: (...values) => Math.min(...values.map((value) => numberArgument(value, 'min'))),
};

export const table: Readonly<Record<string, LuaFunction>> = {
  /** At the end of the list: the form with a position is not supported. */
  insert(list, value, ...more) {
    if (!(list instanceof Table)) throw new LuaError(`bad argument to 'insert' (table expected, got ${typeOf(list)})`);
    if (more.length > 0) throw new Error('The simulation does not know table.insert with a place.');
    list.set(list.length + 1, value);
    return undefined;
  },
  concat(list, between = '') {
    if (!(list instanceof Table)) throw new LuaError(`bad argument to 'concat' (table expected, got ${typeOf(list)})`);
    const texts = Array.from({ length: list.length }, (_, at) => textArgument(list.get(at + 1), 'concat'));
    return texts.join(textArgument(between, 'concat'));
  },
};

export const string: Readonly<Record<string, LuaFunction>> = {
  sub(value, from, to = -1) {
    const text = textArgument(value, 'sub');
    const start = positionIn(text, numberArgument(from, 'sub'));
    const end = positionIn(text, numberArgument(to, 'sub'));
    return text.slice(Math.max(start, 1) - 1, Math.max(end, 0));
  },
  match(value, pattern) {
    const found = patternOf(pattern, 'match').exec(textArgument(value, 'match'));
    if (!found) return undefined;
    return found.length === 1 ? found[0] : new Multi(found.slice(1));
  },
  /** From a position on, where ^ matches. */
  find(value, pattern, from = 1) {
    const text = textArgument(value, 'find');
    const start = Math.max(positionIn(text, numberArgument(from, 'find')), 1) - 1;
    const found = patternOf(pattern, 'find').exec(text.slice(start));
    if (!found) return undefined;
    const at = start + found.index;
    return new Multi([at + 1, at + found[0].length, ...found.slice(1)]);
  },
  format(value, ...args) {
    let next = 0;
    return textArgument(value, 'format').replace(
      /%(0?)(\d*)(?:\.(\d+))?(.)/g,
      (spec, zero: string, width: string, precision: string | undefined, kind: string) => {
        if (spec === '%%') return '%';
        const text = formatted(args[next++], kind, precision, spec);
        if (!zero || text[0] !== '-') return text.padStart(Number(width), zero || ' ');
        return `-${text.slice(1).padStart(Number(width) - 1, '0')}`;
      },
    );
  },
};

/** Counted from 1, or from the end if negative. */
function positionIn(text: string, position: number): number {
  const whole = Math.trunc(position);
  return whole < 0 ? text.length + whole + 1 : whole;
}

function formatted(value: LuaValue, kind: string, precision: string | undefined, spec: string): string {
  if (kind === 's' && precision === undefined) return textArgument(value, 'format');
  if (kind === 'd' && precision === undefined) return integerText(Math.trunc(numberArgument(value, 'format')));
  if (kind === 'f' && precision === '0') return integerText(roundToEven(numberArgument(value, 'format')));
  throw new Error(`The simulation does not know "${spec}" of string.format: add it to test/simulation/lua/library.ts.`);
}

const integerText = (value: number): string => (Number.isFinite(value) ? BigInt(value).toString() : textOf(value));

/** As C rounds by default. */
function roundToEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** The classes of characters of Lua, as they are in the locale C. */
const CLASSES: Readonly<Record<string, string>> = {
  a: 'A-Za-z',
  d: '0-9',
  l: 'a-z',
  s: ' \\t\\n\\v\\f\\r',
  u: 'A-Z',
  w: 'A-Za-z0-9',
  x: 'A-Fa-f0-9',
};
const patterns = new Map<string, RegExp>();

/**
 * A Lua pattern as a regular expression. In both, a repetition is of one character or class, takes as much as it can
 * ("-": as little), and gives back until the rest fits. A pattern without an equivalent is refused.
 */
function patternOf(value: LuaValue, name: string): RegExp {
  const pattern = textArgument(value, name);
  let found = patterns.get(pattern);
  if (!found) patterns.set(pattern, (found = new RegExp(expressionOf(pattern))));
  return found;
}

function expressionOf(pattern: string): string {
  const refuse = (what: string): never => {
    throw new Error(
      `The simulation does not know ${what} in the pattern "${pattern}": see test/simulation/lua/library.ts.`,
    );
  };
  const classOf = (letter: string) => CLASSES[letter.toLowerCase()] ?? refuse(`%${letter}`);
  let at = pattern.startsWith('^') ? 1 : 0;
  let expression = at === 1 ? '^' : '';

  const set = (): string => {
    let text = '[';
    if (pattern[++at] === '^') text += pattern[at++]!;
    for (const begin = at; pattern[at] !== ']' || at === begin; at++) {
      if (at >= pattern.length) refuse('a set without its end');
      const character = pattern[at]!;
      if (character === '%') {
        const escaped = pattern[++at] ?? refuse('% at the end');
        text += /[a-z]/.test(escaped)
          ? classOf(escaped)
          : /[A-Z]/.test(escaped)
            ? refuse(`%${escaped} in a set`)
            : literal(escaped);
      } else {
        text += character === '-' && at > begin && pattern[at + 1] !== ']' ? '-' : literal(character);
      }
    }
    return `${text}]`;
  };

  for (; at < pattern.length; at++) {
    const character = pattern[at]!;
    if (character === '(' && pattern[at + 1] === ')') refuse('a capture of a position');
    if (character === '(' || character === ')') {
      expression += character;
      continue;
    }
    if (character === '$' && at === pattern.length - 1) {
      expression += '$';
      continue;
    }
    if (character === '%') {
      const escaped = pattern[++at] ?? refuse('% at the end');
      if (/[\dbf]/.test(escaped)) refuse(`%${escaped}`);
      if (/[a-z]/.test(escaped)) expression += `[${classOf(escaped)}]`;
      else if (/[A-Z]/.test(escaped)) expression += `[^${classOf(escaped)}]`;
      else expression += literal(escaped);
    } else if (character === '[') expression += set();
    else expression += character === '.' ? '[^]' : literal(character);
    const repetition = pattern[at + 1];
    if (repetition === '*' || repetition === '+' || repetition === '?' || repetition === '-') {
      expression += repetition === '-' ? '*?' : repetition;
      at++;
    }
  }
  return expression;
}

const literal = (character: string): string => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
