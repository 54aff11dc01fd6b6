/** Remembers the highest fencing token of each key: `SqlFence`, `RedisFence`, or one of your own. */
export interface FenceStore {
  /**
   * Checks a token and remembers it, in one atomic step: between two, a newer token could pass.
   * @returns `false` when a newer one was seen; the same one passes again, as a holder may write several times
   * @throws when the store cannot be asked, or gave an unexpected answer
   */
  raise(key: string, fencingToken: number): Promise<boolean>;
}
