/**
 * The message of an error, without anything that may hold a password: Redis repeats the arguments of a command that it does
 * not know, and errors of clients carry the command with its arguments, AUTH included, as properties.
 */
export function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // A host name with several addresses: one error for each, and no message of its own.
  if (error instanceof AggregateError) return error.errors.map(problemOf).join(', ');
  return error.message.replace(/,? with args beginning with.*/s, '').replace(/\.$/, ''); // its quoter adds a full stop
}

/** Whether this answer says that nobody has logged in. */
export function needsLogin(answer: string): boolean {
  return answer.startsWith('NOAUTH');
}

/** Whether this answer says that credentials are wrong or missing. */
export function refusesCredentials(answer: string): boolean {
  return needsLogin(answer) || answer.startsWith('WRONGPASS');
}

/** Whether this answer to `SELECT` is final, unlike that of a server that is busy and refuses everything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}
