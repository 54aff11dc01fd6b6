/**
 * Whole numbers that depend only on a seed.
 * @returns a function of the smallest and the largest number
 */
export function randomOf(seed) {
  let state = seed;
  return (from, to) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return from + ((state >>> 8) % (to - from + 1));
  };
}
