import { explore, type Model } from './explorer.js';
import * as oneServerSettings from './one-server.settings.js';
import { oneServer } from './one-server.js';
import { redlock } from './redlock.js';
import { LONG, LONG_MUTANTS, MUTANTS, SHORT } from './settings.js';

/** The long run: all that has to hold, then all that has to fail. Prints as it goes. */
export function main(limit: number): boolean {
  let isRight = true;
  const say = (line: string) => void process.stdout.write(`${line}\n`);
  const right = [
    ...namedModels(redlock, { ...SHORT, ...LONG }),
    ...namedModels(oneServer, { ...oneServerSettings.SHORT, ...oneServerSettings.LONG }, 'one server: '),
  ];
  for (const { name, model } of right) {
    const { states, transitions, depth, seconds, isPartial, problem, trace } = explore(model(), limit);
    isRight &&= problem === undefined;
    say(`${problem === undefined ? 'holds ' : 'BROKEN'} ${name}`);
    say(`       ${states} states, ${transitions} transitions, ${depth} steps deep, ${seconds.toFixed(1)} s`);
    if (isPartial) say(`       not all: it stopped at ${limit} states`);
    if (problem !== undefined) say(`       ${problem}:\n       ${trace.join('\n       ')}`);
  }
  const wrong = [
    ...namedModels(redlock, { ...MUTANTS, ...LONG_MUTANTS }),
    ...namedModels(oneServer, oneServerSettings.MUTANTS, 'one server: '),
  ];
  for (const { name, model } of wrong) {
    const { states, seconds, problem, trace } = explore(model(), limit);
    isRight &&= problem !== undefined;
    say(`${problem === undefined ? 'MISSED' : 'caught'} mutant: ${name}`);
    say(`       ${states} states, ${seconds.toFixed(1)} s; ${problem ?? 'nothing found'}, in ${trace.length} steps:`);
    say(`       ${trace.join('\n       ')}`);
  }
  return isRight;
}

function namedModels<Setting, State extends object>(
  modelOf: (setting: Setting) => Model<State>,
  settings: Record<string, Setting>,
  prefix = '',
): { name: string; model: () => Model<object> }[] {
  return Object.entries(settings).map(([name, setting]) => ({
    name: prefix + name,
    model: () => modelOf(setting) as Model<object>,
  }));
}
