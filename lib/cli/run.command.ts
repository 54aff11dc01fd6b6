import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import { LockContendedError, LockLostError } from '../api/errors.js';
import { describeHolder } from '../api/holder.js';
import type { Lock } from '../api/lock.js';
import { EXIT, type Action, type Call } from './command.js';
import { durationOf, UsageError } from './command-line.js';
import { withLocks } from './open.js';
import { withoutCredentials } from './servers.js';
import { whole } from './text.js';

/** The signals that this process passes on to the command. */
const FORWARDED_SIGNALS = ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'] as const;
/** The signals that a terminal also sends to the command itself. */
const TERMINAL_SIGNALS: ReadonlySet<NodeJS.Signals> = new Set(['SIGINT', 'SIGQUIT']);

/** A signal that came before the command was started. */
class Interrupted extends Error {
  constructor(readonly signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`);
  }
}

/** Runs a command under a lock. */
export const run: Action = async (call) => {
  const { key, options, rest, terminal } = call;
  if (rest.length === 0) throw new UsageError('run needs a command: run <key> -- <command> [arguments]');
  const waitMs = durationOf('wait', options.wait);
  const ttlMs = durationOf('ttl', options.ttl);
  const holdMs = durationOf('hold', options.hold);
  const command = new Command(call);
  try {
    return await withLocks(call, { ttlMs }, (locks) =>
      locks.withLock(key, { waitMs, holdMs, signal: command.interrupted }, (lock) => command.run(lock)),
    );
  } catch (error) {
    if (error instanceof Interrupted) return codeOf(error.signal);
    // The original messages are for applications.
    if (error instanceof LockContendedError) {
      const { holder, keptUntil } = error;
      const state = keptUntil ? `kept until ${keptUntil.toISOString()} by` : 'held by';
      terminal.complain(whole(`${key} is ${state} ${holder ? describeHolder(holder) : 'others'}.`));
      return EXIT.busy;
    }
    if (error instanceof LockLostError) {
      terminal.complain(whole(`The lock on ${key} was lost (${error.reason}) while the command ran.`));
      return EXIT.lost;
    }
    throw error;
  } finally {
    command.forget();
  }
};

/** A command, and the signals that this process passes on to it. */
class Command {
  readonly #call: Call;
  readonly #interruption = new AbortController();
  #child?: ChildProcess;

  constructor(call: Call) {
    this.#call = call;
    for (const signal of FORWARDED_SIGNALS) process.on(signal, this.#pass);
  }

  /** Aborts at a signal before the command has started. */
  get interrupted(): AbortSignal {
    return this.#interruption.signal;
  }

  readonly #pass = (signal: NodeJS.Signals): void => {
    if (!this.#child) this.#interruption.abort(new Interrupted(signal));
    // Many programs treat a second signal as a request to exit at once.
    else if (!TERMINAL_SIGNALS.has(signal) || !isAtTerminal()) this.#child.kill(signal);
  };

  /** @returns the code to exit with, when the command has ended */
  async run(lock: Lock): Promise<number> {
    this.#interruption.signal.throwIfAborted();
    lock.assertHeld();
    const { rest, env, options, terminal, limits } = this.#call;
    const commandEnv = options['pass-credentials'] ? env : withoutCredentials(env);
    const [file, ...args] = rest as [string, ...string[]];
    const token = { LOCK_FENCING_TOKEN: String(lock.fencingToken) };
    const cannotRun = ({ code }: NodeJS.ErrnoException) => {
      terminal.complain(`${whole(file)} cannot be run (${code}).`);
      return code === 'ENOENT' ? EXIT.notFound : EXIT.cannotRun;
    };
    let child: ChildProcess;
    try {
      child = spawn(file, args, { stdio: 'inherit', env: { ...commandEnv, ...token } });
    } catch (error) {
      return cannotRun(error as NodeJS.ErrnoException); // some reasons are thrown, others are events
    }
    this.#child = child;
    return new Promise((resolve) => {
      let killing: NodeJS.Timeout | undefined;
      const stop = () => {
        child.kill('SIGTERM');
        terminal.complain('The lock is lost: the command is stopped.');
        killing = setTimeout(() => child.kill('SIGKILL'), limits.graceMs);
      };
      const ended = (code: number) => {
        clearTimeout(killing);
        lock.signal.removeEventListener('abort', stop);
        resolve(code);
      };
      lock.signal.addEventListener('abort', stop);
      if (lock.signal.aborted) stop(); // lost while the command was started
      child.on('error', (error) => {
        if (child.pid === undefined) ended(cannotRun(error)); // otherwise a signal could not be sent
      });
      child.on('exit', (code, signal) => ended(code ?? codeOf(signal!)));
    });
  }

  /** Stops passing on signals. */
  forget(): void {
    for (const signal of FORWARDED_SIGNALS) process.off(signal, this.#pass);
  }
}

/** Whether this process, and so the command, runs at a terminal. Some of its streams may still be files or pipes. */
function isAtTerminal(): boolean {
  return [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY);
}

/** Returns the exit code that a shell reports for a command that was ended by a signal. */
function codeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}
