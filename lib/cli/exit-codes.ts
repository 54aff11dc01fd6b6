/** What a command exits with. Those above 60 are of sysexits.h. */
export const EXIT = {
  ok: 0,
  /** The answer is no: the lock is free, the doctor found errors, nothing was done. */
  no: 1,
  /** The doctor found warnings, with `--strict`. */
  warnings: 2,
  usage: 64,
  /** The servers cannot be reached or used. */
  unavailable: 69,
  /** A fault of this program. */
  fault: 70,
  /** Another holder kept the lock for as long as was waited. */
  busy: 75,
  /** The lock was lost while the command ran. */
  lost: 76,
  cannotRun: 126,
  notFound: 127,
} as const;
