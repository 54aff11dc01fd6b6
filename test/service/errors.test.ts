import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { LockContendedError, LockUnavailableError, NodeError } from 'nest-redis-lock';

const holder = { owner: 'web-3/17/random/1', host: 'web-3', pid: 17 };

describe('a refusal', () => {
  const causes = [new NodeError('a:1', 'down'), new NodeError('b:2', 'hangs')];

  it.each([
    ['a contended lock', new LockContendedError('k', 10, { holder, remainingMs: 20 })],
    ['an unavailable lock', LockUnavailableError.from('acquired', 'k', causes)],
    ['a node', causes[0]!],
  ])('of %s is printed as one line, which is its stack, too', (_what, error) => {
    const line = `${error.name}: ${error.message}`;
    expect(inspect(error)).toBe(line);
    expect(error.stack).toBe(line);
    expect(inspect({ error }, { breakLength: Infinity })).toBe(`{ error: ${line} }`);
  });
});
