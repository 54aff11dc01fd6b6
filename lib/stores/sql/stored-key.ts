/** A key as the table has it: PostgreSQL has no text with NUL. */
export function stored(key: string): string {
  return /[\\\0]/.test(key) ? key.replaceAll('\\', '\\\\').replaceAll('\0', '\\0') : key;
}

/** The key that is stored so. */
export function fromStored(text: string): string {
  return text.includes('\\')
    ? text.replace(/\\([\\0])/g, (_, escaped: string) => (escaped === '0' ? '\0' : '\\'))
    : text;
}
