import { errorOf, LuaError, Multi, Table, type LuaValue } from '../lua/values.js';

/** A status, such as `+OK`. */
export class Status {
  constructor(readonly text: string) {}
}

/** An error, as the answer of a command. */
export class ReplyError {
  constructor(readonly text: string) {}
}

/** Fields and their values, one after the other: a map in RESP3, an array in RESP2. */
export class Fields {
  constructor(readonly list: readonly Reply[]) {}
}

/** The reply to a command. Texts are byte strings: one character for each byte. */
export type Reply = number | string | null | Status | ReplyError | Fields | readonly Reply[];

export const OK = new Status('OK');

/** A reply as a script gets it. */
export function toLua(reply: Reply): LuaValue {
  if (reply === null) return false;
  if (typeof reply === 'number' || typeof reply === 'string') return reply;
  if (reply instanceof Status) return new Table([], { ok: reply.text });
  if (reply instanceof ReplyError) return new Table([], { err: reply.text });
  return new Table((reply instanceof Fields ? reply.list : reply).map(toLua));
}

/** The result of a script, as its caller gets it. */
export function fromLua(result: LuaValue | Multi): Reply {
  const value = result instanceof Multi ? result.values[0] : result;
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? Math.trunc(value) : SMALLEST_INTEGER;
  if (value === true) return 1;
  if (!(value instanceof Table)) return null;
  const [error, status] = [value.get('err'), value.get('ok')];
  if (typeof error === 'string') return new ReplyError(error);
  if (typeof status === 'string') return new Status(status);
  const list: Reply[] = [];
  for (let at = 1; value.get(at) !== undefined; at++) list.push(fromLua(value.get(at)));
  return list;
}

/** The conversion by C of a number that is not an integer, on the machines that Redis runs on. */
const SMALLEST_INTEGER = -9_223_372_036_854_775_808;

/** An error that ends a script, as its caller gets it. */
export function endedBy({ value, line }: LuaError, sha: string): ReplyError {
  const text = value instanceof Table ? errorOf(value) : `ERR user_script:${line}: ${value}`;
  return new ReplyError(`${text} script: ${sha}, on @user_script:${line}.`);
}
