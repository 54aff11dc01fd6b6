import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';
import { textOf } from './inspect.command.js';
import { TO_LOOK, withLocks } from './open.js';
import { confirmed } from './terminal.js';
import { whole, wrap } from './text.js';

/** Takes a lock from its holder. */
export const release: Action = async (call) => {
  const { key, options, terminal } = call;
  const { owner, force = false, yes = false } = options;
  if (owner !== undefined && force) {
    throw new UsageError(
      'release takes --owner or --force, not both: --owner takes the lock from that holder only, --force from any.',
    );
  }
  if (owner === undefined && !force) {
    throw new UsageError('release needs --owner DIGEST, as inspect shows it, or --force, which takes it from anybody.');
  }
  return withLocks(call, TO_LOOK, async (locks) => {
    let from = owner;
    if (!yes) {
      const info = await locks.inspect(key);
      if (!info || (owner !== undefined && info.digest !== owner)) {
        terminal.complain(`${whole(key)} is ${info ? 'held by another owner' : 'free'}: nothing to release.`);
        return EXIT.no;
      }
      terminal.complain(wrap(textOf(info), terminal.columns));
      const question = 'Its work may still run, and another call can get the lock at once. Take it from this holder?';
      if (!(await confirmed(terminal, question))) return EXIT.no;
      from = info.digest; // not from one that came while the question was read
    }
    const wasHeld = await locks.forceRelease(key, from === undefined ? {} : { owner: from });
    if (wasHeld) terminal.print(`${whole(key)} was released`);
    else terminal.complain(`${whole(key)} was not held${from === undefined ? '' : ' by that owner'}.`);
    return wasHeld ? EXIT.ok : EXIT.no;
  });
};
