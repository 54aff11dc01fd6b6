/**
 * How long a lease may be relied on, in milliseconds after its command was sent. The allowance for clocks that run at
 * different speeds, 1 % + 2 ms, is that of the Redlock description.
 */
export function validityMs(ttlMs: number, marginMs: number): number {
  return ttlMs - (ttlMs * 0.01 + 2) - marginMs;
}
