/** Characters that a terminal or a log viewer obeys, that show nothing, or that turn the text around them. */
export const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** How much of a text a message shows, in UTF-16 units: most keys and owner values are shorter. */
const MOST = 200;

/**
 * A text that strangers may have chosen, such as a key or an owner value, for a message: as one line that only shows it, so that it
 * can neither forge a line of a log nor fill it. Whoever prints such a text calls this; fields such as `error.key` stay as they are.
 * @param most how much of it is shown, in UTF-16 units; the message says how much is left out
 */
export function printable(text: string, most = MOST): string {
  if (text.length <= most) return escaped(text);
  const end = isHighSurrogate(text.charCodeAt(most - 1)) ? most - 1 : most;
  return `${escaped(text.slice(0, end))}… (${text.length - end} more characters)`;
}

/** The same in quotes, as messages name keys. */
export function quoted(text: string): string {
  return `"${printable(text)}"`;
}

/** `a`, `a and b`, `a, b and c`. */
export function inWords(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), ...names.slice(-1)].filter(Boolean).join(' and ');
}

function escaped(text: string): string {
  return text.replace(UNSAFE, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}
