import { parseArgs } from 'node:util';

/** The command line is wrong. The message repeats no option value, which may be a URL with a password. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** @param value the placeholder in the help @param meaning the description in the help */
const text = (value: string, meaning: string) => ({ type: 'string', value, meaning }) as const;
const texts = (value: string, meaning: string) => ({ ...text(value, meaning), multiple: true }) as const;
const flag = (meaning: string) => ({ type: 'boolean', value: '', meaning }) as const;

/** The options that say which servers keep the locks. */
const SERVERS = {
  redis: text('URL', 'redis://host:6379, rediss:// for TLS, or /a/socket'),
  redlock: texts('URL,URL,URL', 'all nodes of a Redlock'),
  cluster: texts('URL', 'one or more nodes of a Cluster'),
  sentinel: texts('host:port,…', 'the Sentinels'),
  'sentinel-name': text('<name>', 'the name of the master that they watch'),
  prefix: text('<prefix>', 'the keyPrefix of the application (default: lock)'),
  postgres: text('URL', 'postgres://host:5432/database'),
  mysql: text('URL', 'mysql://host:3306/database, also for MariaDB'),
  table: text('<name>', 'name, or schema.name (default: resource_lock)'),
};

/** The options that need no command. */
const STANDALONE = {
  version: flag('print the version of the package'),
  help: { ...flag('show this help, or the options of a command'), short: 'h' },
};

/** All options of all commands. */
const OPTIONS = {
  ...SERVERS,
  json: flag('print JSON; null for a lock that is free'),
  strict: flag('exit with 2 for warnings'),
  limit: text('<count>', 'maximum number of locks (default: 500)'),
  watch: flag('refresh every two seconds, until Ctrl-C'),
  owner: text('DIGEST', 'only from this holder; inspect shows its digest'),
  force: flag('from all holders'),
  yes: flag('do not ask for confirmation'),
  wait: text('<duration>', 'how long to wait (default: 10s; 0: not at all)'),
  ttl: text('<duration>', 'how long the lock outlives a crash (default: 30s)'),
  hold: text('<duration>', 'minimum time to keep the lock, like 1m (default: 0)'),
  'pass-credentials': flag('pass REDIS_PASSWORD and the like to the command'),
  ...STANDALONE,
};

export type OptionName = keyof typeof OPTIONS;

export const SERVER_OPTIONS = Object.keys(SERVERS) as OptionName[];
export const STANDALONE_OPTIONS = Object.keys(STANDALONE) as OptionName[];

/** Returns the help on options, one line for each. */
export function helpOn(names: readonly OptionName[]): string {
  return names.map((name) => `  ${`--${name} ${OPTIONS[name].value}`.padEnd(26)}  ${OPTIONS[name].meaning}`).join('\n');
}

/** A parsed command line. */
export interface CommandLine {
  /** The command and its arguments. */
  words: string[];
  options: ReturnType<typeof parsed>['values'];
  /** Everything after `--`. */
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
    // An unset shell variable leaves an empty value.
    const empty = Object.entries(values).find(([, value]) => [value].flat().includes(''));
    if (empty) throw withoutValue(`--${empty[0]}`);
    return { words: positionals, options: values, rest: [...rest] };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    // A mistyped argument may contain a password: the message repeats only what can be an option name.
    const option = /--?[a-z-]*/i.exec((error as Error).message)?.[0] ?? '';
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE')
      throw new UsageError(`There is no option ${option}. See --help.`);
    throw takesText(option) ? withoutValue(option) : new UsageError(`${option} takes no value.`);
  }
}

/** Returns an option that was given several times although it takes one value: only the last value would count. */
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
