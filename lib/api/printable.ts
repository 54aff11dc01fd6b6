/** Control, invisible and text-direction characters. */
export const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Maximum number of UTF-16 units of a text that a message shows. Most keys and owner values are shorter. */
const MAX_LENGTH = 200;

/**
 * Escapes and cuts a text that others may have chosen, such as a key or an owner value: so it can neither forge nor fill a log line.
 * Call it when you print such a text; fields such as `error.key` stay unescaped.
 * @param maxLength how many UTF-16 units to show; the result says how many are left out
 */
export function printable(text: string, maxLength = MAX_LENGTH): string {
  if (text.length <= maxLength) return escaped(text);
  const end = isHighSurrogate(text.charCodeAt(maxLength - 1)) ? maxLength - 1 : maxLength;
  return `${escaped(text.slice(0, end))}… (${text.length - end} more characters)`;
}

/** Escapes a text and puts it in quotes, as messages name keys. */
export function quoted(text: string): string {
  return `"${printable(text)}"`;
}

/** Joins names: `a`, `a and b`, `a, b and c`. */
export function inWords(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), ...names.slice(-1)].filter(Boolean).join(' and ');
}

function escaped(text: string): string {
  return text.replace(UNSAFE, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}
