/** A client process: opens one contestant and runs the requested tasks of one scenario. */
import { loadContestant } from '../contestants/index.mjs';
import { SCENARIOS } from '../scenarios/index.mjs';
import { countCommands } from './command-counter.mjs';

/** The state that the tasks of a scenario share in this process. */
const client = { contestant: undefined, commandsSent: () => 0, terms: undefined };
let tasks;

async function open({ scenario, contestant, counting, ...terms }) {
  if (counting) client.commandsSent = countCommands(terms.ports);
  ({ tasks } = SCENARIOS[scenario]);
  const { open: openContestant } = await loadContestant(contestant);
  client.terms = terms;
  client.contestant = await openContestant(terms);
}

async function perform({ task, terms }) {
  if (task === 'open') return open(terms);
  if (task === 'prepare') return client.contestant.prepare?.(terms.keys);
  return tasks[task](client, terms);
}

process.on('message', (message) => {
  perform(message).then(
    (value) => process.send({ id: message.id, value }),
    // The library refuses options that this build of it does not have.
    ({ name, message: text }) =>
      process.send({ id: message.id, error: { name, message: text, isRefused: name === 'LockOptionsError' } }),
  );
});
