/** A Lua script that does one operation, on one lock or on many in one call: see `generate.mjs`. */
export interface Script {
  name: string;
  source: string;
  /** SHA-1 of the source, in hexadecimal. */
  sha: string;
  /** The order of commands that are sent together: releases go first, so that the next holders find the locks free. */
  order: number;
  /** The most locks that one call is for: few enough that answers are read while the server works on the rest. */
  locksPerCall: number;
  /** How many keys all locks of a call share: the first ones. */
  sharedKeys: number;
  /** How many arguments all locks of a call share: the first ones. */
  sharedArgs: number;
}
