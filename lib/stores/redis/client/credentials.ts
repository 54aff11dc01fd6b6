/** Stands in a message for a credential. */
const HIDDEN = '***';
/** A password of fewer characters is found as a whole word only: in others it would be found by chance. */
const FOUND_ANYWHERE = 4;

/** What a client logs in with, at servers and at Sentinels. */
export interface Credentials {
  passwords: string[];
  /** Found as whole words only. `default` is the name of every user that has none, and no secret. */
  usernames: string[];
}

/** A text of a server, or of the client, without the credentials that it repeats, also in the forms that URLs and quotes have. */
export function withoutCredentials(text: string, { passwords, usernames }: Credentials): string {
  const anywhere = passwords.filter((each) => each.length >= FOUND_ANYWHERE);
  const asWords = [...passwords.filter((each) => each.length < FOUND_ANYWHERE), ...usernames];
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
