/** Remembers the highest fencing token of each key: `SqlFence`, `RedisFence`, or one of your own. */
export interface FenceStore {
  /**
   * Checks a token and remembers it, in one atomic step: between two steps, a newer token could pass.
   * @returns `false` if a newer token was seen; the same token passes again, since a holder may write several times
   * @throws if the store cannot be reached or gives an unexpected answer
   */
  raise(key: string, fencingToken: number): Promise<boolean>;
}
