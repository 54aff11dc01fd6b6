import { LockOptionsError } from '../../api/errors.js';

/** A URL parameter or option about TLS in any driver. A driver ignores parameters of other drivers, and connects without TLS. */
const TLS_NAME = /ssl|tls|cert|secur|encrypt|gssenc|channel_?binding/i;
/** A value that demands TLS, whatever the name of its parameter. */
const STRICT_VALUE = /^(requir|verif)/i;
/** `scheme://user:password@host:port/database?query`: drivers would read another host from other forms. */
const URL_SHAPE = /^\w+:\/\/([^/?#]*@)?[^/?#@]*(\/[^?#@]*)?(\?[^#@=]*(=[^#]*)?)?$/;
const BROKEN_ESCAPE = /%(?![\da-f]{2})/i;

/** The TLS parameters of a driver, with patterns of their values. */
export type TlsWords = Readonly<Record<string, RegExp>>;

/**
 * Returns the TLS parameters in the query of a URL.
 * @throws LockOptionsError for a parameter that the driver does not know, or for unencoded special characters. It repeats no value
 */
export function tlsWordsOf(url: string, understood: TlsWords): [word: string, value: string][] {
  if (!URL_SHAPE.test(url) || BROKEN_ESCAPE.test(url)) throw unreadable();
  const query = [...new URLSearchParams(url.replace(/^[^?]*/, ''))];
  const words = query.filter(([word, value]) => TLS_NAME.test(word) || STRICT_VALUE.test(value));
  words.forEach(([word, value], at) => {
    if (!understood[word]?.test(value)) throw unknownTlsWord('in the URL of the database', word);
    if (words.findIndex(([other]) => other === word) !== at)
      throw new LockOptionsError(`${word} is in the URL of the database more than once. Write it once.`);
  });
  return words;
}

/** @throws LockOptionsError for a TLS option that the driver does not know, such as an option of another library */
export function checkTlsOptions(options: object, understood: readonly string[], place = ''): void {
  for (const [name, value] of Object.entries(options)) {
    if (place === '' && understood.includes(name)) continue;
    if (value && TLS_NAME.test(name)) throw unknownTlsWord('in the options of the database', place + name);
    const isPlain = typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
    if (isPlain && place.length < 100) checkTlsOptions(value as object, understood, `${place}${name}.`);
  }
}

export function unreadable(): LockOptionsError {
  // The URL may contain a password, so it is left out.
  return new LockOptionsError(
    'The URL of the database cannot be read. Special characters in the user name and the password must be encoded: % as %25, # as %23, / as %2F.',
  );
}

function unknownTlsWord(where: string, word: string): LockOptionsError {
  const shown = /^[\w.-]{1,40}$/.test(word) ? word : 'a word';
  return new LockOptionsError(
    `${shown} ${where} is not understood, and the connection could be without TLS. ` +
      'Write sslmode=verify-full in a URL of PostgreSQL, ssl=true in a URL of MySQL, or give ssl next to it: postgres: { connectionString, ssl: true }, mysql: { uri, ssl: {} }.',
  );
}
