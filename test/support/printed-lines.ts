import { vi } from 'vitest';

/** The console output from now on, line by line, instead of printing it. `vi.restoreAllMocks` restores it. */
export function printedLines(): string[] {
  const lines: string[] = [];
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, 'write').mockImplementation((text) => {
      lines.push(...String(text).replace(/\n$/, '').split('\n'));
      return true;
    });
  }
  return lines;
}
