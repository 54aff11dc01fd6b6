/** Stands in a message for a credential. */
const HIDDEN = '***';
/** A password of fewer characters is found as a whole word only: in others it would be found by chance. */
const MIN_SUBSTRING_LENGTH = 4;

/** What a client logs in with, at servers and at Sentinels. */
export interface Credentials {
  passwords: string[];
  /** Found as whole words only. `default` is the name of every user that has none, and no secret. */
  usernames: string[];
}

const NO_CREDENTIALS: Credentials = { passwords: [], usernames: [] };

/** Those that are there, once each. A password may be a function, of which the server knows nothing. */
export function credentials(passwords: readonly unknown[], usernames: readonly unknown[]): Credentials {
  const texts = (values: readonly unknown[]) =>
    [...new Set(values)]
      .filter((each) => /string|number/.test(typeof each))
      .map(String)
      .filter(Boolean);
  return { passwords: texts(passwords), usernames: texts(usernames).filter((name) => name !== 'default') };
}

/**
 * The message of an error, without anything that may hold a password: Redis repeats the arguments of a command that it does
 * not know, and errors of clients carry the command with its arguments, AUTH included, as properties.
 * @param of credentials that it must not repeat, in whatever words
 */
export function problemOf(error: unknown, of = NO_CREDENTIALS): string {
  if (!(error instanceof Error)) return withoutCredentials(String(error), of);
  // A host name with several addresses: one error for each, and no message of its own.
  if (error instanceof AggregateError) return error.errors.map((each) => problemOf(each, of)).join(', ');
  const problem = error.message.replace(/,? with args beginning with.*/s, '').replace(/\.$/, ''); // its quoter adds a full stop
  return withoutCredentials(problem, of);
}

/** A text of a server, or of the client, without the credentials that it repeats, also in the forms that URLs and quotes have. */
function withoutCredentials(text: string, { passwords, usernames }: Credentials): string {
  const anywhere = passwords.filter((each) => each.length >= MIN_SUBSTRING_LENGTH);
  const asWords = [...passwords.filter((each) => each.length < MIN_SUBSTRING_LENGTH), ...usernames];
  const patterns = [
    ...formsOf(anywhere),
    ...formsOf(asWords).map((each) => `(?<![\\p{L}\\p{N}_])${each}(?![\\p{L}\\p{N}_])`),
  ];
  return patterns.length === 0 ? text : text.replace(new RegExp(patterns.join('|'), 'gu'), HIDDEN);
}

/** As patterns, the longest first: one may be a part of another. */
function formsOf(secrets: readonly string[]): string[] {
  const forms = secrets.flatMap((each) => [each, encoded(each), decoded(each), JSON.stringify(each).slice(1, -1)]);
  return [...new Set(forms)]
    .sort((a, b) => b.length - a.length)
    .map((each) => each.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
}

function unlessInvalid(change: (text: string) => string): (text: string) => string {
  return (text) => {
    try {
      return change(text);
    } catch {
      return text; // a percent sign of its own, or half of a character
    }
  };
}

const encoded = unlessInvalid(encodeURIComponent);
const decoded = unlessInvalid(decodeURIComponent);
