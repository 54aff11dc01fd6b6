// Messages repeat no text of the options, since it may contain a password.

export const VARIABLE_HINT = 'Is the variable that it comes from set?';
export const URL_OBJECT_PROBLEM = 'a URL object. Give its text: url.href.';

/** Options as the driver receives them. */
export type Given = Readonly<Record<string, unknown>>;

/** Checks of the options of an address. For other values drivers connect to localhost, or fail with unclear errors. */
const PARTS: readonly [name: string, isFit: (value: unknown) => boolean, what: string][] = [
  ['host', isHost, 'the name of a host'],
  ['path', isText, 'the path of a socket'],
  ['socketPath', isText, 'the path of a socket'],
  ['port', isPort, 'a port'],
];

/** Describes what is wrong with the address of a server in options. */
export function problemOfAddress({ port, ...address }: Given): string | undefined {
  const given: Given = address.path || address.socketPath ? address : { port, ...address }; // drivers ignore the port of a socket path
  const [name, , what] = PARTS.find(([part, isFit]) => kindOf(given[part]) !== 'nothing' && !isFit(given[part])) ?? [];
  return name && `${name} ${numberOrKind(given[name])}, which is not ${what}. ${VARIABLE_HINT}`;
}

/** @param names the options that can contain the address */
export function withoutAddress(names: string): string {
  return (
    `options without the address of a server, so the client would connect to localhost. Give ${names}, even if you mean ` +
    `localhost. ${VARIABLE_HINT}`
  );
}

export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return 'nothing';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

export function numberOrKind(value: unknown): string {
  return typeof value === 'number' ? String(value) : kindOf(value);
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

/** A name without a port. A URL is refused: messages contain the host, and a URL can contain a password. */
function isHost(value: unknown): boolean {
  return typeof value === 'string' && !/[@\s]|^[^:]*:[^:]*$/.test(value);
}

/** Accepts text, too, because environment variables are text. */
function isPort(value: unknown): boolean {
  const port = typeof value === 'string' ? Number(value) : value;
  return Number.isInteger(port) && (port as number) > 0 && (port as number) < 65_536;
}
