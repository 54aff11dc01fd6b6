import { LockContendedError, LockKeyError, LockOptionsError, LockUnavailableError } from '../api/errors.js';
import { checkKey } from '../core/keys/key.js';
import { LIMITS, type Action, type Call, type Limits } from './command.js';
import { readCommandLine, UsageError, type CommandLine, type OptionName } from './command-line.js';
import { doctor } from './doctor.command.js';
import { EXIT } from './exit-codes.js';
import { init } from './init.command.js';
import { inspect } from './inspect.command.js';
import { list } from './list.command.js';
import { release } from './release.command.js';
import { run } from './run.command.js';
import { serversOf } from './servers.js';
import type { Terminal } from './terminal.js';
import { printable } from './text.js';

/** A command, as it is called. */
interface Entry {
  /** Its arguments in the help. */
  usage: string;
  summary: string;
  action: Action;
  options: readonly OptionName[];
  takes: 'nothing' | 'a key' | 'a pattern at most';
}

const COMMANDS: Readonly<Record<string, Entry>> = {
  doctor: {
    usage: '[--strict] [--json]',
    summary: 'check the servers; 1 for errors, 2 for warnings with --strict',
    action: doctor,
    options: ['strict', 'json'],
    takes: 'nothing',
  },
  ls: {
    usage: '[pattern] [--limit 500] [--watch] [--json]',
    summary: 'list the locks that are held; * in the pattern stands for any text',
    action: list,
    options: ['limit', 'watch', 'json'],
    takes: 'a pattern at most',
  },
  inspect: {
    usage: '<key> [--json]',
    summary: 'show who holds a lock; 1 when it is free',
    action: inspect,
    options: ['json'],
    takes: 'a key',
  },
  release: {
    usage: '<key> --owner DIGEST | --force [--yes]',
    summary: 'take a lock from its holder',
    action: release,
    options: ['owner', 'force', 'yes'],
    takes: 'a key',
  },
  run: {
    usage: '<key> [--wait 10s] [--ttl 30s] [--hold 1m] -- <command>',
    summary: 'run a command under a lock; 75 when another holds it',
    action: run,
    options: ['wait', 'ttl', 'hold'],
    takes: 'a key',
  },
  init: {
    usage: '[--yes]',
    summary: 'let the nodes of a new Redlock vote at once',
    action: init,
    options: ['yes'],
    takes: 'nothing',
  },
};

const CONNECTION: readonly OptionName[] = [
  'redis',
  'redlock',
  'cluster',
  'sentinel',
  'sentinel-name',
  'prefix',
  'help',
];

const HELP = `Usage: nest-redis-lock <command> [options]

${Object.entries(COMMANDS)
  .map(([name, { usage, summary }]) => `  ${name} ${usage}\n      ${summary}`)
  .join('\n')}

Servers (default: REDIS_URL of the environment)
  --redis URL                 redis://host:6379, rediss:// for TLS, or /a/socket
  --redlock URL,URL,URL       all nodes of a Redlock
  --cluster URL               one node of a Cluster or more
  --sentinel host:port,…      with --sentinel-name, the name of the master
  --prefix lock               the keyPrefix of the application

From the environment, as other users see command lines:
  REDIS_USERNAME, REDIS_PASSWORD, REDIS_SENTINEL_PASSWORD
  REDIS_TLS=1, REDIS_TLS_CA=file

Exit codes: 0 done, 64 wrong usage, 69 the servers cannot be asked.`;

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
    terminal.complain(`nest-redis-lock: ${printable((error as Error).message)}`);
    return codeOf(error);
  }
}

async function execute(line: CommandLine, surroundings: Pick<Call, 'env' | 'terminal' | 'limits'>): Promise<number> {
  const { env, terminal } = surroundings;
  const [name, ...words] = line.words;
  if (line.options.help || name === undefined) {
    terminal.print(HELP);
    return line.options.help ? EXIT.ok : EXIT.usage;
  }
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  // What stands in the place of a command may be a URL with a password.
  if (!entry)
    throw new UsageError(`The first word must be a command: ${Object.keys(COMMANDS).join(', ')}. See --help.`);
  const { action, options, takes } = entry;
  const unknown = Object.keys(line.options).find(
    (option) => ![...CONNECTION, ...options].includes(option as OptionName),
  );
  if (unknown !== undefined) throw new UsageError(`${name} has no option --${unknown}.`);
  // A key that begins with a dash stands behind "--".
  const [args, rest] = action === run ? [words, line.rest] : [[...words, ...line.rest], []];
  const [least, most] = { nothing: [0, 0], 'a key': [1, 1], 'a pattern at most': [0, 1] }[takes] as [number, number];
  if (args.length < least || args.length > most)
    throw new UsageError(
      `${name} takes ${takes}${action === run ? ', and its command behind "--"' : ''}: got ${args.length} words.`,
    );
  if (takes === 'a key') checkKey(args[0]);
  return action({
    args,
    rest,
    options: line.options,
    servers: serversOf(line, env),
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
