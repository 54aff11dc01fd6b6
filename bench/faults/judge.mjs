/**
 * Evaluates the histories of a cell. A pure function: it sees only the notes of the processes. Times are milliseconds
 * of the monotonic clock, which all processes of a machine share.
 */
/** A call without an answer for this many leases cannot be waiting for a lease to expire. */
const STUCK_LEASES = 2;
/**
 * A holder that asks its library every 20 ms may have believed in its lock a little longer than the last time that it
 * noted.
 */
const TOLERANCE_MS = 2;

/**
 * @param journals the notes of each process: `ask`, `begin`, `end`, `done` and `failed` of its turns, `unhandled`, `stopped`
 * @param fault `{ start, end }`
 * @param killedAt when the victim, process 0, was killed, if it was
 * @param endedAt when the last turn that counts had begun
 * @param sum what the resource says
 * @param ttlMs of the leases
 */
export function judge({ journals, fault, killedAt, endedAt, sum, ttlMs }) {
  const turns = journals.flatMap(turnsOf);
  const isKilled = (turn) => turn.worker === 0 && killedAt !== undefined;
  const lastOf = (turn) => turn.end ?? (isKilled(turn) ? killedAt : endedAt);
  const held = turns.filter((turn) => turn.begin <= endedAt).sort((a, b) => a.begin - b.begin);
  const next = held.find((turn) => turn.begin > fault.end);
  const notes = journals.flat();
  const unhandled = notes.filter(({ what }) => what === 'unhandled').map(({ error }) => error);
  const stalls = journals.slice(1).flatMap((lines) => lines.filter(({ what }) => what === 'stopped'));
  const isStuck = (turn) =>
    turn.settled === undefined && !isKilled(turn) && endedAt - turn.asked > STUCK_LEASES * ttlMs;
  const ordered = turns.find((turn) => turn.isOrdered);
  return {
    turns: held.length,
    ...beside(held, lastOf),
    ...sum,
    tokensBack: tokensBack(held),
    idleMs: Math.round(longestIdle(held, lastOf, fault.start, endedAt)),
    nextMs: next ? Math.round(next.begin - fault.end) : null,
    stuck: turns.filter(isStuck).length,
    refused: countErrors(turns.filter((turn) => turn.error && turn.begin === undefined)),
    failed: countErrors(turns.filter((turn) => turn.error && turn.begin !== undefined)),
    notReleased: turns.filter(({ answer }) => answer === false).length,
    unhandled: unhandled.length,
    ...(unhandled.length > 0 && { lastUnhandled: unhandled.at(-1) }),
    learnedMs: ordered?.knew === undefined ? null : Math.round(ordered.knew - fault.start),
    stallMs: Math.round(Math.max(0, ...stalls.map(({ stallMs }) => stallMs))),
  };
}

/** The turns of a process, each made from the notes that name it. */
function turnsOf(lines, worker) {
  const turns = new Map();
  for (const { what, turn, at, ...terms } of lines) {
    if (what === 'ask') turns.set(turn, { worker, asked: at, ...terms });
    const noted = turns.get(turn);
    if (what === 'begin') Object.assign(noted, { begin: at, ...terms });
    if (what === 'end') Object.assign(noted, { end: at, ...terms });
    if (what === 'done' || what === 'failed') Object.assign(noted, { settled: at, ...terms });
  }
  return [...turns.values()];
}

/**
 * Turns that began during an earlier turn, and among these the turns whose earlier holder still believed in its lock
 * after that.
 */
function beside(held, lastOf) {
  let overlaps = 0;
  let unaware = 0;
  let unawareMs = 0;
  for (const [index, later] of held.entries()) {
    const earlier = held.slice(0, index).filter((turn) => lastOf(turn) > later.begin);
    if (earlier.length > 0) overlaps++;
    const wrongMs = Math.max(0, ...earlier.map(({ believed = -Infinity }) => believed - later.begin));
    if (wrongMs > TOLERANCE_MS) unaware++;
    unawareMs = Math.max(unawareMs, wrongMs);
  }
  return { overlaps, unaware, unawareMs: Math.round(unawareMs) };
}

/** Turns whose token is not larger than an earlier token. */
function tokensBack(held) {
  let newest = 0;
  let count = 0;
  for (const { token } of held) {
    if (token === undefined) continue;
    if (token <= newest) count++;
    newest = Math.max(newest, token);
  }
  return count;
}

/** The longest time without a holder. */
function longestIdle(held, lastOf, from, endedAt) {
  let idleMs = 0;
  let freeSince = from;
  for (const turn of held) {
    if (lastOf(turn) < from) continue;
    idleMs = Math.max(idleMs, turn.begin - freeSince);
    freeSince = Math.max(freeSince, lastOf(turn));
  }
  return Math.max(idleMs, endedAt - freeSince);
}

/** @returns how often each error code, or class, occurred */
function countErrors(turns) {
  const counts = {};
  for (const { error } of turns) {
    const [name] = error.split(':');
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
