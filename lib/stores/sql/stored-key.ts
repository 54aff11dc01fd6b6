/** Converts a key to its stored form, because PostgreSQL cannot store NUL characters. */
export function stored(key: string): string {
  return /[\\\0]/.test(key) ? key.replaceAll('\\', '\\\\').replaceAll('\0', '\\0') : key;
}

/** Converts a stored key back. */
export function fromStored(text: string): string {
  return text.includes('\\')
    ? text.replace(/\\([\\0])/g, (_, escaped: string) => (escaped === '0' ? '\0' : '\\'))
    : text;
}
