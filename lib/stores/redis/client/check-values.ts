// What options of both packages are checked by. Messages repeat no value, as it may hold a password.

export const IS_IT_SET = 'Is the variable that it comes from set?';
export const HTTP = /^https?:\/\//i;
export const BY_HTTP =
  'a Redis that is reached by HTTP. Locks need a connection to it, on which it says whose turn it is: ' +
  'give the redis:// or rediss:// URL of the same server.';

const ENCODE = 'Special characters in user and password must be encoded: % as %25, # as %23, / as %2F.';

/** What is wrong with a URL, or the path of a socket. */
export function problemOfUrl(source: string): string | undefined {
  if (source.startsWith('/')) return undefined; // the path of a socket
  if (source.trim() === '') return `an empty string. ${IS_IT_SET}`;
  if (HTTP.test(source)) return BY_HTTP;
  if (!/^rediss?:\/\//.test(source) || !URL.canParse(source)) {
    return `a string of another form. Write redis://host:port, or the /path of a socket. ${ENCODE}`;
  }
  const { hostname, pathname, searchParams, username, password } = new URL(source);
  if (![username, password].every(canDecode)) return `a URL whose user or password cannot be read. ${ENCODE}`;
  if (hostname === '') return 'a URL without a host, so it would mean localhost. Write redis://host:port.';
  return isDatabase(pathname.slice(1) || (searchParams.get('db') ?? 0))
    ? undefined
    : 'a URL whose path is not the number of a database. Write redis://host:port/0.';
}

function canDecode(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return 'nothing';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

export function numberOrKind(value: unknown): string {
  return typeof value === 'number' ? String(value) : kindOf(value);
}

export function isPort(port: number): boolean {
  return Number.isInteger(port) && port > 0 && port < 65_536;
}

/** With any other value ioredis selects `NaN`, and nobody handles the error, which ends the process. */
export function isDatabase(db: unknown): boolean {
  return /^\d+$/.test(String(db));
}

/** The name that another one was probably meant to be. */
export function nearTo(unknown: string, names: readonly string[]): string | undefined {
  return names.find((name) => isNear(unknown.toLowerCase(), name.toLowerCase()));
}

/** Whether two names differ by one letter that was added, left out or mistyped, or by two that were swapped. */
function isNear(one: string, other: string): boolean {
  const [short, long] = one.length <= other.length ? [one, other] : [other, one];
  let same = 0;
  while (same < short.length && short[same] === long[same]) same++;
  const [restOfShort, restOfLong] = [short.slice(same), long.slice(same)];
  const swapped = `${restOfShort[1] ?? ''}${restOfShort[0] ?? ''}${restOfShort.slice(2)}`;
  return restOfShort === restOfLong.slice(1) || restOfShort.slice(1) === restOfLong.slice(1) || swapped === restOfLong;
}
