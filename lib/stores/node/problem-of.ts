/** Replaces a credential in a message. */
const HIDDEN = '***';
/** A shorter password is replaced only as a whole word: other words may contain it by chance. */
const MIN_SUBSTRING_LENGTH = 4;

/** The credentials of a client, for servers and for Sentinels. */
export interface Credentials {
  passwords: string[];
  /** Replaced only as whole words. Without `default`, which is the user of every client without a user name. */
  usernames: string[];
}

const NO_CREDENTIALS: Credentials = { passwords: [], usernames: [] };

/** Collects the given credentials without duplicates. A password that is a function is ignored, since the server never sees it. */
export function credentials(passwords: readonly unknown[], usernames: readonly unknown[]): Credentials {
  const texts = (values: readonly unknown[]) =>
    [...new Set(values)]
      .filter((each) => /string|number/.test(typeof each))
      .map(String)
      .filter(Boolean);
  return { passwords: texts(passwords), usernames: texts(usernames).filter((name) => name !== 'default') };
}

/**
 * Returns the message of an error without anything that may contain a password. Redis repeats the arguments of an unknown command, and
 * errors of clients have the command with its arguments, even of AUTH, as properties.
 * @param of the credentials to remove
 */
export function problemOf(error: unknown, of = NO_CREDENTIALS): string {
  if (!(error instanceof Error)) return withoutCredentials(String(error), of);
  // A host name with several addresses causes one error for each address, and an empty message for all.
  if (error instanceof AggregateError) return error.errors.map((each) => problemOf(each, of)).join(', ');
  const problem = error.message.replace(/,? with args beginning with.*/s, '').replace(/\.$/, ''); // messages that quote it add a full stop
  return withoutCredentials(problem, of);
}

/** Removes credentials from a text, also in the encoded forms of URLs and quoted strings. */
function withoutCredentials(text: string, { passwords, usernames }: Credentials): string {
  const anywhere = passwords.filter((each) => each.length >= MIN_SUBSTRING_LENGTH);
  const asWords = [...passwords.filter((each) => each.length < MIN_SUBSTRING_LENGTH), ...usernames];
  const patterns = [
    ...formsOf(anywhere),
    ...formsOf(asWords).map((each) => `(?<![\\p{L}\\p{N}_])${each}(?![\\p{L}\\p{N}_])`),
  ];
  return patterns.length === 0 ? text : text.replace(new RegExp(patterns.join('|'), 'gu'), HIDDEN);
}

/** Returns patterns, the longest first, since one may be part of another. */
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
      return text; // a literal percent sign, or half of a character
    }
  };
}

const encoded = unlessInvalid(encodeURIComponent);
const decoded = unlessInvalid(decodeURIComponent);
