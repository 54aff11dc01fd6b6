import { LockContendedError, LockKeyError, LockOptionsError, LockUnavailableError } from '../api/errors.js';
import { VERSION } from '../api/version.js';
import { checkKey } from '../core/keys/key.js';
import { EXIT, LIMITS, type Action, type Call, type Limits } from './command.js';
import {
  helpOn,
  STANDALONE_OPTIONS,
  readCommandLine,
  SERVER_OPTIONS,
  UsageError,
  type CommandLine,
  type OptionName,
} from './command-line.js';
import { ddl } from './ddl.command.js';
import { doctor } from './doctor.command.js';
import { inspect } from './inspect.command.js';
import { list } from './list.command.js';
import { release } from './release.command.js';
import { run } from './run.command.js';
import { installedClient, serversOf } from './servers.js';
import type { Terminal } from './terminal.js';
import { whole } from './text.js';

/** The description of a command. */
interface Entry {
  /** Its arguments in the help. */
  usage: string;
  summary: string;
  action: Action;
  /** Its own options. */
  options: readonly OptionName[];
  /** Its exit codes, besides the common ones. */
  exits: string;
  takes: 'nothing' | 'a key' | 'a database' | 'at most one pattern';
}

const COMMANDS: Readonly<Record<string, Entry>> = {
  doctor: {
    usage: '[--strict] [--json]',
    summary: 'check the servers; exits with 1 for errors',
    action: doctor,
    options: ['strict', 'json'],
    exits: '0, 1 for errors, 2 for warnings with --strict',
    takes: 'nothing',
  },
  ls: {
    usage: '[pattern] [--limit <count>] [--watch] [--json]',
    summary: 'list the locks that are held; * in the pattern matches any text',
    action: list,
    options: ['limit', 'watch', 'json'],
    exits: '0',
    takes: 'at most one pattern',
  },
  inspect: {
    usage: '<key> [--json]',
    summary: 'show who holds a lock; exits with 1 if it is free',
    action: inspect,
    options: ['json'],
    exits: '0, 1 if it is free',
    takes: 'a key',
  },
  release: {
    usage: '<key> --owner DIGEST | --force [--yes]',
    summary: 'take a lock from its holder, or from all its holders',
    action: release,
    options: ['owner', 'force', 'yes'],
    exits: '0, 1 if it was free, another owner held it, or you did not confirm',
    takes: 'a key',
  },
  run: {
    usage: '<key> [--wait <duration>] [--ttl <duration>] [--hold <duration>]\n      -- <command>',
    summary: 'run a command under a lock; exits with 75 if others hold it',
    action: run,
    options: ['wait', 'ttl', 'hold', 'pass-credentials'],
    exits:
      '0 or the exit code of the command, 75 if others hold the lock,\n  76 if it was lost, 126 and 127 if the command cannot be run',
    takes: 'a key',
  },
  ddl: {
    usage: 'postgres|mysql [--table <name>]',
    summary: 'print the statement that creates the table of the locks',
    action: ddl,
    options: ['table'],
    exits: '0',
    takes: 'a database',
  },
};

const SERVERS = `Servers (default: REDIS_URL of the environment)
${helpOn(SERVER_OPTIONS)}

Environment (other users can see command lines, so keep passwords here)
  REDIS_USERNAME, REDIS_PASSWORD, REDIS_SENTINEL_PASSWORD
  REDIS_TLS=1, REDIS_TLS_CA=file
  PGUSER, PGPASSWORD, MYSQL_PWD`;

const COMMON_EXITS =
  '64 wrong usage, 69 the servers cannot be reached,\n  70 an internal error, such as results that cannot be written';

const HELP = `Usage: nest-redis-lock <command> [options]

${Object.entries(COMMANDS)
  .map(([name, { usage, summary }]) => `  ${name} ${usage}\n      ${summary}`)
  .join('\n')}
  help <command>
      show the options of a command

${SERVERS}

Options
${helpOn(STANDALONE_OPTIONS)}

Exit codes: 0 done, ${COMMON_EXITS}.`;

function helpOf(name: string, { usage, summary, options, exits }: Entry): string {
  return `Usage: nest-redis-lock ${name} ${usage}

  ${summary}

Options
${helpOn(options)}

${SERVERS}

Exit codes: ${exits},
  ${COMMON_EXITS}.`;
}

/**
 * Runs a command line.
 * @param argv without node and the script
 * @returns the code to exit with
 */
export async function main(
  argv: readonly string[],
  env: NodeJS.ProcessEnv,
  terminal: Terminal,
  limits: Limits = LIMITS,
): Promise<number> {
  try {
    return await execute(readCommandLine(argv), { env, terminal, limits });
  } catch (error) {
    terminal.complain(`nest-redis-lock: ${whole((error as Error).message)}`);
    return codeOf(error);
  }
}

async function execute(line: CommandLine, surroundings: Pick<Call, 'env' | 'terminal' | 'limits'>): Promise<number> {
  const { env, terminal } = surroundings;
  const isHelp = line.options.help === true || line.words[0] === 'help';
  const [name, ...words] = line.words[0] === 'help' ? line.words.slice(1) : line.words;
  if (line.options.version) {
    terminal.print(VERSION);
    return EXIT.ok;
  }
  if (name === undefined) {
    terminal.print(HELP);
    return isHelp ? EXIT.ok : EXIT.usage;
  }
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (isHelp) {
    if (!entry) throw new UsageError(`Help is available for ${Object.keys(COMMANDS).join(', ')}.`);
    terminal.print(helpOf(name, entry));
    return EXIT.ok;
  }
  // The message does not repeat the first word, which may be a URL with a password.
  if (!entry)
    throw new UsageError(
      name === 'list'
        ? 'There is no command list. Did you mean ls?'
        : `The first word must be a command: ${Object.keys(COMMANDS).join(', ')}. See --help.`,
    );
  const { action, options, takes } = entry;
  const always = takes === 'a database' ? STANDALONE_OPTIONS : [...SERVER_OPTIONS, ...STANDALONE_OPTIONS]; // ddl connects to nothing
  const known: readonly string[] = [...always, ...options];
  const unknown = Object.keys(line.options).find((option) => !known.includes(option));
  if (unknown !== undefined) throw new UsageError(`${name} has no option --${unknown}.`);
  // A key that begins with a dash comes after "--".
  const [args, rest] = action === run ? [words, line.rest] : [[...words, ...line.rest], []];
  const [least, most] = { nothing: [0, 0], 'a key': [1, 1], 'a database': [0, 1], 'at most one pattern': [0, 1] }[
    takes
  ] as [number, number];
  if (args.length < least || args.length > most)
    throw new UsageError(
      `${name} takes ${takes}${action === run ? ', and its command after "--"' : ''}: got ${args.length} words.`,
    );
  if (takes === 'a key') checkKey(args[0]);
  const { postgres, mysql } = line.options;
  const isAboutRedis = takes !== 'a database' && postgres === undefined && mysql === undefined;
  const client = isAboutRedis ? await installedClient() : undefined;
  return action({
    key: args[0] ?? '',
    pattern: args[0],
    rest,
    options: line.options,
    // Read only when a command needs them: ddl needs none.
    get servers() {
      return serversOf(line, env, client);
    },
    keyPrefix: line.options.prefix,
    ...surroundings,
  });
}

function codeOf(error: unknown): number {
  if (error instanceof LockContendedError) return EXIT.busy;
  if (error instanceof LockUnavailableError) return EXIT.unavailable;
  const isUsage = error instanceof UsageError || error instanceof LockOptionsError || error instanceof LockKeyError;
  return isUsage ? EXIT.usage : EXIT.fault;
}
