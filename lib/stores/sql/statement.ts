/** A statement that is sent for one operation, or for many of its kind at once. */
export interface Statement {
  /** By which the connection knows it, once it is prepared. */
  readonly name: string;
  readonly text: string;
  /** As of `Command` in core/backend/lane.ts. */
  readonly order: number;
  /** For how many operations at most. One that is for several takes arrays, the first one that of their keys, and answers with rows that have the `key`. */
  readonly most: number;
}

/** A row of an answer. Which type a number has depends on the driver, and on how the application has set it up: read it with `Number`. */
export type Row = Readonly<Record<string, unknown>>;
