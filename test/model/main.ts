import { explore } from './explorer.js';
import { redlock } from './redlock.js';
import { LONG, LONG_MUTANTS, MUTANTS, SHORT } from './settings.js';

/** The long run: everything that must hold, then everything that must fail. Prints as it goes. */
export function main(limit: number): boolean {
  let isRight = true;
  const say = (line: string) => void process.stdout.write(`${line}\n`);
  for (const [name, setting] of Object.entries({ ...SHORT, ...LONG })) {
    const { states, transitions, depth, seconds, isPartial, problem, trace } = explore(redlock(setting), limit);
    isRight &&= problem === undefined;
    say(`${problem === undefined ? 'holds ' : 'BROKEN'} ${name}`);
    say(`       ${states} states, ${transitions} transitions, ${depth} steps deep, ${seconds.toFixed(1)} s`);
    if (isPartial) say(`       not all: it stopped at ${limit} states`);
    if (problem !== undefined) say(`       ${problem}:\n       ${trace.join('\n       ')}`);
  }
  for (const [name, setting] of Object.entries({ ...MUTANTS, ...LONG_MUTANTS })) {
    const { states, seconds, problem, trace } = explore(redlock(setting), limit);
    isRight &&= problem !== undefined;
    say(`${problem === undefined ? 'MISSED' : 'caught'} mutant: ${name}`);
    say(`       ${states} states, ${seconds.toFixed(1)} s; ${problem ?? 'nothing found'}, in ${trace.length} steps:`);
    say(`       ${trace.join('\n       ')}`);
  }
  return isRight;
}
