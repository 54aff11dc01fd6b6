import { UsageError } from './command-line.js';
import type { Terminal } from './terminal.js';
import { wrap } from './text.js';

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
