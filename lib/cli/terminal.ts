import { createInterface } from 'node:readline';
import { UsageError } from './command-line.js';
import { wrap } from './text.js';

/** The way of a command to its user. */
export interface Terminal {
  /** The width of the output; undefined where it is no terminal, but a file or a program. */
  readonly columns?: number;
  /** Whether a person can be asked. */
  readonly canAsk: boolean;
  /** Prints a line of the result. */
  print(line: string): void;
  /** Prints a line about what is wrong, or under way. */
  complain(line: string): void;
  /** @returns the answer; '' where there is none */
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
 * Asks a person for a yes; anything else is a no.
 * @throws UsageError where nobody can be asked
 */
export async function confirmed(terminal: Terminal, question: string): Promise<boolean> {
  if (!terminal.canAsk) throw new UsageError('There is no terminal to ask for confirmation on: add --yes.');
  const answer = await terminal.ask(`${wrap(question, terminal.columns)} [y/N] `);
  if (/^y(es)?$/i.test(answer.trim())) return true;
  terminal.complain('Nothing was done.');
  return false;
}
