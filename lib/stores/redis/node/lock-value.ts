/** The value of a lock in Redis: `<owner>@<token of 16 digits>`, and `+` if its queue may have waiters, or `=` if it is kept. */
const VALUE = /^(.+)@(\d{16})([+=]?)$/s;

/** The holder of a lock, as its value shows. */
export interface LockValue {
  owner: string;
  /** The token of its grant: the last one of a block. Undefined in a value that another program wrote. */
  fencingToken?: number;
  /** The work of the owner has ended, and the lock stands until its time is over. */
  isKept?: true;
}

/** The part of the value that scripts compare: without its end, the owner `x/1` would be found in a value of `x/10`. */
export function ownerPart(owner: string): string {
  return `${owner}@`;
}

/** A token as scripts take it, and values have it: texts of one length compare like numbers. */
export function tokenText(fencingToken: number): string {
  return String(fencingToken).padStart(16, '0');
}

/** The value of a lock that nobody waits for. */
export function valueText(owner: string, fencingToken: number): string {
  return ownerPart(owner) + tokenText(fencingToken);
}

/** Reads a value. One that another program wrote is the owner as it is. */
export function readValue(value: string): LockValue {
  const [, owner, token, flag] = VALUE.exec(value) ?? [];
  if (owner === undefined) return { owner: value };
  return { owner, fencingToken: Number(token), isKept: flag === '=' || undefined };
}
