import { LockContendedError, LockKeyError, LockOptionsError, LockUnavailableError } from '../api/errors.js';
import { VERSION } from '../api/version.js';
import { checkKey } from '../core/keys/key.js';
import { EXIT, LIMITS, type Action, type Call, type Limits } from './command.js';
import { readCommandLine, UsageError, type CommandLine, type OptionName } from './command-line.js';
import { ddl } from './ddl.command.js';
import { doctor } from './doctor.command.js';
import { inspect } from './inspect.command.js';
import { list } from './list.command.js';
import { release } from './release.command.js';
import { run } from './run.command.js';
import { installedClient, serversOf } from './servers.js';
import type { Terminal } from './terminal.js';
import { whole } from './text.js';

/** A command, as it is called. */
interface Entry {
  /** Its arguments in the help. */
  usage: string;
  summary: string;
  action: Action;
  /** Its own options, as they are written, with what they are for. */
  options: Partial<Record<OptionName, readonly [written: string, meaning: string]>>;
  /** What it exits with beside what all exit with. */
  exits: string;
  takes: 'nothing' | 'a key' | 'a database' | 'at most one pattern';
}

const COMMANDS: Readonly<Record<string, Entry>> = {
  doctor: {
    usage: '[--strict] [--json]',
    summary: 'check the servers; 1 for errors, 2 for warnings with --strict',
    action: doctor,
    options: {
      strict: ['--strict', 'exit with 2 for warnings'],
      json: ['--json', 'print the report as JSON'],
    },
    exits: '0, 1 for errors, 2 for warnings with --strict',
    takes: 'nothing',
  },
  ls: {
    usage: '[pattern] [--limit <count>] [--watch] [--json]',
    summary: 'list the locks that are held; * in the pattern stands for any text',
    action: list,
    options: {
      limit: ['--limit <count>', 'how many to list at most (default: 500)'],
      watch: ['--watch', 'look again every two seconds, until Ctrl-C'],
      json: ['--json', 'print them as JSON; with --watch a line each time'],
    },
    exits: '0',
    takes: 'at most one pattern',
  },
  inspect: {
    usage: '<key> [--json]',
    summary: 'show who holds a lock; 1 when it is free',
    action: inspect,
    options: { json: ['--json', 'print it as JSON; null when it is free'] },
    exits: '0, 1 when it is free',
    takes: 'a key',
  },
  release: {
    usage: '<key> --owner DIGEST | --force [--yes]',
    summary: 'take a lock from its holder, or from all its holders',
    action: release,
    options: {
      owner: ['--owner DIGEST', 'from this holder only, as inspect shows it'],
      force: ['--force', 'from whoever holds it, all of them'],
      yes: ['--yes', 'do not ask'],
    },
    exits: '0, 1 when it was free, held by another owner, or not confirmed',
    takes: 'a key',
  },
  run: {
    usage: '<key> [--wait <duration>] [--ttl <duration>] [--hold <duration>]\n      -- <command>',
    summary: 'run a command under a lock; 75 when another holds it',
    action: run,
    options: {
      wait: ['--wait <duration>', 'how long to wait (default: 10s; 0: not at all)'],
      ttl: ['--ttl <duration>', 'how long the lock outlives a crash (default: 30s)'],
      hold: ['--hold <duration>', 'how long it is kept at least, like 1m (default: 0)'],
      'pass-credentials': ['--pass-credentials', 'let the command have REDIS_PASSWORD and the like'],
    },
    exits:
      '0 or what the command exits with, 75 when another holds the lock,\n  76 when it was lost, 126 and 127 when the command cannot be run',
    takes: 'a key',
  },
  ddl: {
    usage: 'postgres|mysql [--table <name>]',
    summary: 'print the statement that creates the table of the locks',
    action: ddl,
    options: { table: ['--table <name>', 'name, or schema.name (MySQL: database.name; default: resource_lock)'] },
    exits: '0',
    takes: 'a database',
  },
};

const CONNECTION: readonly OptionName[] = [
  'redis',
  'redlock',
  'cluster',
  'sentinel',
  'sentinel-name',
  'prefix',
  'postgres',
  'mysql',
  'table',
];
/** The options that do without a command. */
const ALONE: readonly OptionName[] = ['help', 'version'];

const SERVERS = `Servers (default: REDIS_URL of the environment)
  --redis URL                 redis://host:6379, rediss:// for TLS, or /a/socket
  --redlock URL,URL,URL       all nodes of a Redlock
  --cluster URL               one node of a Cluster or more
  --sentinel host:port,…      with --sentinel-name, the name of the master
  --prefix <prefix>           the keyPrefix of the application (default: lock)
  --postgres URL              postgres://host:5432/database
  --mysql URL                 mysql://host:3306/database, also of MariaDB
  --table <name>              the table there: name, or schema.name, in MySQL
                              database.name (default: resource_lock)

Environment (other users can see command lines, so keep passwords here)
  REDIS_USERNAME, REDIS_PASSWORD, REDIS_SENTINEL_PASSWORD
  REDIS_TLS=1, REDIS_TLS_CA=file
  PGUSER, PGPASSWORD, MYSQL_PWD`;

const EXITS_OF_ALL =
  '64 wrong usage, 69 the servers cannot be reached,\n  70 a fault of this program, such as results that it cannot write';

const HELP = `Usage: nest-redis-lock <command> [options]

${Object.entries(COMMANDS)
  .map(([name, { usage, summary }]) => `  ${name} ${usage}\n      ${summary}`)
  .join('\n')}
  help <command>
      show the options of a command

${SERVERS}

--version prints the version of the package.
Exit codes: 0 done, ${EXITS_OF_ALL}.`;

/** The help of one command. */
function helpOf(name: string, { usage, summary, options, exits }: Entry): string {
  const own = Object.values(options).map(([written, meaning]) => `  ${written.padEnd(26)}  ${meaning}`);
  return `Usage: nest-redis-lock ${name} ${usage}

  ${summary}

Options
${own.join('\n')}

${SERVERS}

Exit codes: ${exits},
  ${EXITS_OF_ALL}.`;
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
    if (!entry) throw new UsageError(`There is help for ${Object.keys(COMMANDS).join(', ')}.`);
    terminal.print(helpOf(name, entry));
    return EXIT.ok;
  }
  // What stands in the place of a command may be a URL with a password.
  if (!entry)
    throw new UsageError(
      name === 'list'
        ? 'There is no command list. Did you mean ls?'
        : `The first word must be a command: ${Object.keys(COMMANDS).join(', ')}. See --help.`,
    );
  const { action, options, takes } = entry;
  const always: readonly string[] = takes === 'a database' ? ALONE : [...CONNECTION, ...ALONE]; // ddl connects to nothing
  const unknown = Object.keys(line.options).find(
    (option) => !always.includes(option) && !Object.hasOwn(options, option),
  );
  if (unknown !== undefined) throw new UsageError(`${name} has no option --${unknown}.`);
  // A key that begins with a dash stands behind "--".
  const [args, rest] = action === run ? [words, line.rest] : [[...words, ...line.rest], []];
  const [least, most] = { nothing: [0, 0], 'a key': [1, 1], 'a database': [0, 1], 'at most one pattern': [0, 1] }[
    takes
  ] as [number, number];
  if (args.length < least || args.length > most)
    throw new UsageError(
      `${name} takes ${takes}${action === run ? ', and its command behind "--"' : ''}: got ${args.length} words.`,
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
    // Read when a command wants them: ddl needs none.
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
