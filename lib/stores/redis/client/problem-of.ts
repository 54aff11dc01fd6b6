/**
 * What was wrong, in words that cannot hold a password: Redis repeats the arguments of a command that it does not know. The
 * other properties of an error are left out: errors of clients carry the command with its arguments, AUTH included.
 */
export function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // One for each address of a host name that has several; it has no message of its own.
  if (error instanceof AggregateError) return error.errors.map(problemOf).join(', ');
  return error.message.replace(/,? with args beginning with.*/s, '').replace(/\.$/, ''); // what quotes it ends the sentence
}
