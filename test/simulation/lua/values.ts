/**
 * The values of Lua 5.1 in JavaScript. nil is undefined; a string is a byte string, one character for each byte; a number is
 * a double in both.
 */
export type LuaValue = undefined | boolean | number | string | Table | LuaFunction;
export type LuaFunction = (...args: LuaValue[]) => LuaValue | Multi;

/** The results of a call with several results. */
export class Multi {
  constructor(readonly values: readonly LuaValue[]) {}
}

/** An error of a script: a text of the interpreter, or a table with an error of Redis. */
export class LuaError extends Error {
  constructor(
    readonly value: string | Table,
    /** The line of the script, if known. */
    readonly line = 0,
  ) {
    super(errorOf(value));
  }
}

/** The text of an error: of the interpreter, or of Redis. */
export function errorOf(value: string | Table): string {
  if (typeof value === 'string') return value;
  const error = value.get('err');
  return typeof error === 'string' ? error : 'ERR unknown error';
}

/** A table: a list from 1 on, and named fields. */
export class Table {
  readonly #list: LuaValue[];
  readonly #fields = new Map<LuaValue, LuaValue>();

  constructor(list: readonly LuaValue[] = [], fields: Readonly<Record<string, LuaValue>> = {}) {
    this.#list = [...list];
    this.#trim();
    for (const [name, value] of Object.entries(fields)) this.set(name, value);
  }

  get(key: LuaValue): LuaValue {
    const listed = typeof key === 'number' ? this.#list[key - 1] : undefined;
    return listed === undefined ? this.#fields.get(key) : listed;
  }

  set(key: LuaValue, value: LuaValue): void {
    if (key === undefined || Number.isNaN(key)) throw new LuaError('table index is nil, or no number');
    const isListed = typeof key === 'number' && Number.isInteger(key) && key >= 1 && key <= this.#list.length + 1;
    if (!isListed) {
      if (value === undefined) this.#fields.delete(key);
      else this.#fields.set(key, value);
      return;
    }
    this.#list[key - 1] = value;
    if (value === undefined) this.#trim();
    else this.#takeFields();
  }

  /** A border, as `#` finds it if the list has no holes. */
  get length(): number {
    return this.#list.length;
  }

  #trim(): void {
    while (this.#list.length > 0 && this.#list.at(-1) === undefined) this.#list.pop();
  }

  /** The list has reached fields that were set before. */
  #takeFields(): void {
    for (let next = this.#list.length + 1; this.#fields.has(next); next++) {
      this.#list.push(this.#fields.get(next));
      this.#fields.delete(next);
    }
  }
}

export function typeOf(value: LuaValue): string {
  if (value === undefined) return 'nil';
  return value instanceof Table ? 'table' : typeof value;
}

/** A number in the format `%.<precision>g` of C. */
export function numberText(value: number, precision: number): string {
  if (Number.isSafeInteger(value) && value !== 0 && Math.abs(value) < 10 ** precision) return String(value);
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (value === 0) return Object.is(value, -0) ? '-0' : '0';
  const [digits, exponentText] = value.toExponential(precision - 1).split('e') as [string, string];
  const exponent = Number(exponentText);
  if (exponent >= -4 && exponent < precision) return withoutZeros(value.toFixed(precision - 1 - exponent));
  return `${withoutZeros(digits)}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
}

function withoutZeros(digits: string): string {
  return digits.includes('.') ? digits.replace(/\.?0+$/, '') : digits;
}

/** A number as Lua converts it to text. */
export const textOf = (value: number): string => numberText(value, 14);

const SPACE = '[ \\t\\n\\v\\f\\r]*';
const DECIMAL = new RegExp(`^${SPACE}[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:e[-+]?\\d+)?${SPACE}$`, 'i');
const HEXADECIMAL = new RegExp(`^${SPACE}([-+]?)(0x[\\da-f]+)${SPACE}$`, 'i');
const SPECIAL = new RegExp(`^${SPACE}([-+]?)(inf|infinity|nan)${SPACE}$`, 'i');

/** The number in a text, as `strtod` of C reads it; undefined: none. */
export function numberOf(value: LuaValue): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  if (DECIMAL.test(value)) return Number(value);
  const hexadecimal = HEXADECIMAL.exec(value);
  if (hexadecimal) return Number(hexadecimal[2]) * (hexadecimal[1] === '-' ? -1 : 1);
  const special = SPECIAL.exec(value);
  if (!special) return undefined;
  if (special[2]!.toLowerCase() === 'nan') return NaN;
  return special[1] === '-' ? -Infinity : Infinity;
}

/** The commands of Redis, as scripts call them. */
export interface RedisOfScripts {
  /** @throws LuaError if Redis answers with an error */
  call(line: number, args: readonly LuaValue[]): LuaValue;
  /** @returns a table with `err` if Redis answers with an error */
  pcall(line: number, args: readonly LuaValue[]): LuaValue;
}
