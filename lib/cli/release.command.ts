import type { LockInfo } from '../api/lock.js';
import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';
import { textOf } from './inspect.command.js';
import { READ_ONLY_SETTINGS, withLocks } from './open.js';
import { confirmed } from './terminal.js';
import { whole, wrap } from './text.js';

/** Takes a lock from its holder, or from all its holders. */
export const release: Action = async (call) => {
  const { key, options, terminal } = call;
  const { owner, force = false, yes = false } = options;
  if (owner !== undefined && force) {
    throw new UsageError(
      'release takes --owner or --force, not both: --owner takes the lock from that holder only, --force from all.',
    );
  }
  if (owner === undefined && !force) {
    throw new UsageError(
      'release needs --owner DIGEST, as inspect shows it, or --force, which takes the lock from all holders.',
    );
  }
  return withLocks(call, READ_ONLY_SETTINGS, async (locks) => {
    let from = owner === undefined ? undefined : [owner];
    if (!yes) {
      const info = await locks.inspect(key);
      const shown = info && ofOwner(info, owner);
      if (!shown) {
        terminal.complain(`${whole(key)} is ${info ? 'held by another owner' : 'free'}: nothing to release.`);
        return EXIT.no;
      }
      terminal.complain(wrap(textOf(shown), terminal.columns));
      const { length } = shown.holders;
      const holders = length === 1 ? 'this holder' : `these ${length} holders`;
      const work = length === 1 ? 'Its work' : 'Their work';
      const question = `${work} may still run, and another call can get the lock at once. Take it from ${holders}?`;
      if (!(await confirmed(terminal, question))) return EXIT.no;
      from = shown.holders.map(({ digest }) => digest); // not from a holder that came during the question
    }
    let wasHeld = from === undefined && (await locks.forceRelease(key));
    for (const digest of from ?? []) wasHeld = (await locks.forceRelease(key, { owner: digest })) || wasHeld;
    if (wasHeld) terminal.print(`${whole(key)} was released`);
    else terminal.complain(`${whole(key)} was not held${from === undefined ? '' : ' by that owner'}.`);
    return wasHeld ? EXIT.ok : EXIT.no;
  });
};

/** Returns the lock with only the holders that the command releases. */
function ofOwner(info: LockInfo, owner: string | undefined): LockInfo | undefined {
  const holders = info.holders.filter(({ digest }) => owner === undefined || digest === owner);
  return holders.length > 0 ? { ...info, holders } : undefined;
}
