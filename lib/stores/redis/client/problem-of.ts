/**
 * What was wrong, in words that cannot hold a password: errors of the client carry the command with its arguments, AUTH
 * included, and Redis repeats the arguments of a command that it does not know.
 */
export function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.message.startsWith('Reached the max retries per request'))
    return 'the connection broke before the answer came';
  // One for each address of a host name that has several; it has no message of its own.
  if (error instanceof AggregateError) return error.errors.map(problemOf).join(', ');
  return error.message.replace(/,? with args beginning with.*/s, '').replace(/\.$/, ''); // what quotes it ends the sentence
}
