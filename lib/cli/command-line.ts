import { parseArgs, type ParseArgsConfig } from 'node:util';

/** The command line is wrong. Its message repeats no value of an option, as that may be a URL with a password. */
export class UsageError extends Error {
  override name = 'UsageError';
}

const TEXT = { type: 'string' } as const;
const TEXTS = { type: 'string', multiple: true } as const;
const FLAG = { type: 'boolean' } as const;

/** All options of all commands. */
const OPTIONS = {
  redis: TEXT,
  redlock: TEXTS,
  cluster: TEXTS,
  sentinel: TEXTS,
  'sentinel-name': TEXT,
  prefix: TEXT,
  postgres: TEXT,
  mysql: TEXT,
  table: TEXT,
  json: FLAG,
  strict: FLAG,
  limit: TEXT,
  watch: FLAG,
  owner: TEXT,
  force: FLAG,
  yes: FLAG,
  wait: TEXT,
  ttl: TEXT,
  hold: TEXT,
  'pass-credentials': FLAG,
  version: FLAG,
  help: { type: 'boolean', short: 'h' },
} as const satisfies ParseArgsConfig['options'];

export type OptionName = keyof typeof OPTIONS;

/** A command line that was read. */
export interface CommandLine {
  /** The command and its arguments. */
  words: string[];
  options: ReturnType<typeof parsed>['values'];
  /** All that follows `--`. */
  rest: string[];
}

/** @throws UsageError */
export function readCommandLine(argv: readonly string[]): CommandLine {
  const end = argv.indexOf('--');
  const [args, rest] = end < 0 ? [argv, []] : [argv.slice(0, end), argv.slice(end + 1)];
  try {
    const { positionals, values, tokens } = parsed(args);
    const repeated = repeatedIn(tokens.flatMap((token) => (token.kind === 'option' ? [token.name] : [])));
    if (repeated !== undefined) throw new UsageError(`--${repeated} was given twice.`);
    // As a variable of a shell that is not set leaves it.
    const empty = Object.entries(values).find(([, value]) => [value].flat().includes(''));
    if (empty) throw withoutValue(`--${empty[0]}`);
    return { words: positionals, options: values, rest: [...rest] };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    // An argument that was mistyped may hold a password: only the part that can be the name of an option is repeated.
    const option = /--?[a-z-]*/i.exec((error as Error).message)?.[0] ?? '';
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE') throw new UsageError(`The option ${option} is not known.`);
    throw takesText(option) ? withoutValue(option) : new UsageError(`${option} takes no value.`);
  }
}

/** An option with one value that was given several times: all but the last would be passed over. */
function repeatedIn(names: readonly string[]): string | undefined {
  const single = Object.entries(OPTIONS).flatMap(([name, option]) =>
    option.type === 'string' && !('multiple' in option) ? [name] : [],
  );
  return single.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
}

function takesText(option: string): boolean {
  return Object.entries(OPTIONS).some(([name, { type }]) => option === `--${name}` && type === 'string');
}

function withoutValue(option: string): UsageError {
  return new UsageError(`${option} needs a value. If that begins with a dash, write ${option}=-x.`);
}

function parsed(args: readonly string[]) {
  return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, tokens: true });
}

/** Reads a whole number. @throws UsageError */
export function countOf(option: OptionName, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${option} must be a whole number.`);
  return Number(text);
}

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;

/** Reads a length of time like `500ms`, `10s`, `1m` or `2h`, in milliseconds. @throws UsageError */
export function durationOf(option: OptionName, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  if (unit !== undefined) return Math.round(Number(number) * UNITS[unit as keyof typeof UNITS]);
  if (text === '0') return 0;
  throw new UsageError(`--${option} must be a length of time like 500ms, 10s, 1m or 2h.`);
}
