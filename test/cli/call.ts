import { main } from '../../lib/cli/main.js';

/** The output and the exit code of a command line. */
export interface Called {
  code: number;
  out: string;
  err: string;
}

/** The surroundings of a command line. */
export interface Surroundings {
  env?: Record<string, string>;
  /** The width of the terminal that it prints to. @default it prints to no terminal */
  columns?: number;
  /**
   * The answer of a person to a question.
   * @default there is nobody to ask
   */
  answer?: string | (() => Promise<string>);
  /**
   * How long to try to connect.
   * @default far longer than a running server takes to answer
   */
  connectMs?: number;
  /**
   * How long a stopped command may take to end.
   * @default far longer than a normal command takes
   */
  graceMs?: number;
  /** Called with each line of the result as it is printed. */
  printed?: (line: string) => void;
}

/** Calls a command line in this process. */
export async function call(
  argv: readonly string[],
  { env = {}, columns, answer, connectMs = 20_000, graceMs = 20_000, printed }: Surroundings = {},
): Promise<Called> {
  const called: Called = { code: -1, out: '', err: '' };
  called.code = await main(
    argv,
    { PATH: process.env.PATH, ...env },
    {
      columns,
      canAsk: answer !== undefined,
      print: (line) => {
        called.out += `${line}\n`;
        printed?.(line);
      },
      complain: (line) => void (called.err += `${line}\n`),
      ask: async (question) => {
        called.err += question;
        return typeof answer === 'function' ? answer() : (answer ?? '');
      },
    },
    { connectMs, graceMs, watchMs: 50 },
  );
  return called;
}
