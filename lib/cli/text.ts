import { printable, UNSAFE } from '../api/printable.js';

/** Escapes a text for a terminal, without cutting it, since programs also read the output. */
export function whole(text: string): string {
  return printable(text, Infinity);
}

/** Returns JSON in which the characters that are unsafe for a terminal are escaped. */
export function json(value: unknown, indent = 2): string {
  return JSON.stringify(value, undefined, indent).replace(UNSAFE, (char) =>
    char === '\n' ? char : unicodeEscape(char),
  );
}

function unicodeEscape(char: string): string {
  return char
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}

/** Returns the count with the noun in the singular or plural. @param noun a noun with a plural in -s */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Cuts a text to the given number of columns. */
export function fit(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let cut = '';
  for (const char of text) {
    if (widthOf(cut + char) >= columns) break;
    cut += char;
  }
  return `${cut}…`;
}

/** Returns the maximum number of columns of a text: characters of many non-European scripts are twice as wide. */
function widthOf(text: string): number {
  let width = 0;
  for (const char of text) width += char.codePointAt(0)! < 0x1100 || char === '…' ? 1 : 2;
  return width;
}

/** Wraps each line at spaces and indents the rest. Does not break a word that is too long. */
export function wrap(text: string, columns = Infinity): string {
  return text
    .split('\n')
    .map((line) => wrapLine(line, columns))
    .join('\n');
}

function wrapLine(line: string, columns: number): string {
  const [indent] = /^ */.exec(line)!;
  const lines: string[] = [];
  let current = indent;
  for (const word of line.trim().split(' ')) {
    const longer = current.trim() === '' ? current + word : `${current} ${word}`;
    if (widthOf(longer) <= columns || current.trim() === '') {
      current = longer;
    } else {
      lines.push(current);
      current = `${indent}  ${word}`;
    }
  }
  return [...lines, current].join('\n');
}

/** Aligns rows in columns, and cuts the widest columns until all fit. */
export function table(rows: readonly (readonly string[])[], columns: number): string[] {
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => widthOf(row[at]!))));
  const excess = () => widths.reduce((sum, width) => sum + width + GAP, -GAP) - columns;
  while (excess() > 0 && Math.max(...widths) > 1) widths[widths.indexOf(Math.max(...widths))]!--;
  return rows.map((row) =>
    row
      .map((text, at) => padded(fit(text, widths[at]!), widths[at]!))
      .join(' '.repeat(GAP))
      .trimEnd(),
  );
}

/** The spaces between two columns. */
const GAP = 2;

function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)));
}

/** Formats a duration: `350 ms`, `29.9 s`, `12 min`. */
export function duration(ms: number): string {
  if (ms === Infinity) return 'no end';
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 100_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}
