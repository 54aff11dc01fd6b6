import { quoted } from '../api/printable.js';
import { openNewRedlock } from '../compose/open-redis.js';
import type { InitialisationProblem } from '../stores/redis/redlock/initialisation.js';
import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';
import { confirmed } from './terminal.js';
import { whole, wrap } from './text.js';

/** Lets the nodes of a new Redlock vote at once, on an operator's word. */
export const init: Action = async ({ options, servers, keyPrefix, terminal, limits }) => {
  if (!('redlock' in servers)) throw new UsageError('init is for a Redlock: name all its nodes with --redlock.');
  const redlock = await openNewRedlock(servers.redlock, { keyPrefix, connectTimeoutMs: limits.connectMs });
  const say = (line: string) => terminal.complain(wrap(whole(line), terminal.columns));
  const refused = (problems: readonly InitialisationProblem[], outcome: string) => {
    for (const { message } of problems) say(message);
    say(
      `${outcome} Nodes that are not initialised vote by themselves, one ttl after the first application has asked them.`,
    );
    return problems.some(({ isUnavailable }) => isUnavailable) ? EXIT.unavailable : EXIT.no;
  };
  try {
    const before = await redlock.examine();
    if (before.length > 0) return refused(before, 'No node was initialised.');
    if (!options.yes) {
      say(`${redlock.names.join(', ')}: no key begins with ${quoted(`${redlock.keyPrefix}:`)}.`);
      const question =
        'Let them vote at once? Only if they are all nodes of this Redlock, and none has been in use: nodes that lost ' +
        'their data look the same, and then two callers can hold one lock.';
      if (!(await confirmed(terminal, question))) return EXIT.no;
    }
    const { initialised, problems } = await redlock.initialise();
    for (const name of initialised) terminal.print(`${whole(name)} votes`);
    if (problems.length === 0) return EXIT.ok;
    // One that does not answer may have been.
    const isNone = initialised.length === 0 && problems.every(({ isUnavailable }) => !isUnavailable);
    return refused(problems, isNone ? 'No node was initialised.' : 'Not all nodes were initialised.');
  } finally {
    await redlock.close();
  }
};
