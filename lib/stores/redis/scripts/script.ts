/** A Lua script that does one operation, on one lock or on many in one call: see `generate.mjs`. */
export interface Script {
  name: string;
  source: string;
  /** SHA-1 of the source, in hexadecimal. */
  sha: string;
  /** What is sent together goes in this order: what is given back is free before others ask for it. */
  order: number;
  /** How many locks one call is for at most: few enough to read some answers while the server is at work on the rest. */
  locksPerCall: number;
}
