/** Checks that the controls failed, as they must: otherwise the other figures prove nothing. */
import { PARTICIPANTS, TTL_MS } from './settings.mjs';

/**
 * The faults under which `SET NX` with one value must lose updates: the holder that resumes deletes the lock of another
 * one.
 */
const TELLING = 'holder-paused';
/** The faults under which it must wait for a lock that it unknowingly holds, until that lock expires. */
const ORPHANING = 'acquire-reply-lost';

/** @returns the problems, as sentences */
export function blindControls(cells) {
  const problems = [];
  const isControl = ({ contestant }) => PARTICIPANTS[contestant].isControl;
  const idle = cells.filter((cell) => PARTICIPANTS[cell.contestant].sendsNothing && cell.result?.lost === 0);
  if (idle.length > 0) {
    const faults = idle.map(({ fault, seed }) => `${fault} (seed ${seed})`).join(', ');
    problems.push(`Without a lock no update was lost in ${faults}: the other figures of these cells prove nothing.`);
  }
  const naive = cells.filter(({ contestant, result }) => contestant === 'set-nx' && result);
  if (naive.some(({ fault }) => fault === TELLING) && naive.every(({ result }) => result.lost === 0))
    problems.push('SET NX with one value lost no update in any cell: the run cannot see a lock that lets two in.');
  if (naive.some(({ fault, result }) => fault === ORPHANING && result.idleMs < TTL_MS / 2))
    problems.push(`SET NX waited for no lock in ${ORPHANING}: another command was cut than the one that was meant.`);
  const failed = cells.filter((cell) => isControl(cell) && cell.failure);
  for (const { contestant, fault, failure } of failed)
    problems.push(`The control ${contestant} did not run in ${fault}: ${failure}`);
  return problems;
}
