/**
 * Reads a list of names, with commas between them.
 * @returns those of the known names that it names
 * @throws Error for a name that is not known
 */
export function pick<T extends string>(value: string, known: readonly T[]): T[] {
  const ids = value.split(',');
  const unknown = ids.find((id) => !known.includes(id as T));
  if (unknown !== undefined) throw new Error(`${unknown} is not known: expected ${known.join(', ')}.`);
  return known.filter((id) => ids.includes(id));
}
