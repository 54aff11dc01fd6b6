import { createInterface } from 'node:readline';
import { UsageError } from './command-line.js';
import { wrap } from './text.js';

/** The input and output of a command. */
export interface Terminal {
  /** The width of the output; undefined if it is a file or a program, not a terminal. */
  readonly columns?: number;
  /** Whether a person can be asked. */
  readonly canAsk: boolean;
  /** Prints a line of the result. */
  print(line: string): void;
  /** Prints a line about a problem or the progress. */
  complain(line: string): void;
  /** Asks a question. @returns the answer; '' if there is none */
  ask(question: string): Promise<string>;
}

/** The terminal of this process. */
export function ownTerminal(): Terminal {
  const { stdin, stdout, stderr } = process;
  return {
    columns: stdout.isTTY ? stdout.columns || 80 : undefined,
    canAsk: stdin.isTTY && stderr.isTTY,
    print: (line) => void stdout.write(`${line}\n`),
    complain: (line) => void stderr.write(`${line}\n`),
    ask: (question) =>
      new Promise((resolve) => {
        const reader = createInterface({ input: stdin, output: stderr });
        reader.on('close', () => resolve('')); // Ctrl-C, or the end of the input
        reader.question(question, (answer) => {
          resolve(answer);
          reader.close();
        });
      }),
  };
}

/**
 * Asks for a yes; any other answer means no.
 * @throws UsageError without a terminal
 */
export async function confirmed(terminal: Terminal, question: string): Promise<boolean> {
  if (!terminal.canAsk) throw new UsageError('There is no terminal to ask for confirmation on: add --yes.');
  const answer = await terminal.ask(`${wrap(question, terminal.columns)} [y/N] `);
  if (/^y(es)?$/i.test(answer.trim())) return true;
  terminal.complain('Nothing was done.');
  return false;
}
