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
