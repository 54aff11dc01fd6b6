import { describe, expect, it, vi } from 'vitest';
import { Poll } from '../../lib/backends/poll.js';

/** A question to three nodes, answered as the test says. */
function poll() {
  const tellers: ((answer: string) => void)[] = [];
  const answers = new Poll<string>(3, (node, told) => (tellers[node] = told));
  return { answers, tell: (node: number, answer: string) => tellers[node]!(answer) };
}

describe('A poll', () => {
  it('is decided once, by the first answers that allow it', () => {
    const { answers, tell } = poll();
    const settled = vi.fn();
    const decide = vi.fn((given: readonly (string | undefined)[]) =>
      given.filter(Boolean).length >= 2 ? given.join() : undefined,
    );
    answers.decide(decide, settled);
    expect(decide).not.toHaveBeenCalled();
    tell(2, 'c');
    expect(decide).toHaveBeenLastCalledWith([undefined, undefined, 'c'], 2);
    tell(0, 'a');
    tell(1, 'b');
    expect(settled.mock.calls).toEqual([['a,,c']]);
    expect(decide).toHaveBeenCalledTimes(2);
  });

  it('tells each answer once to those who listen, those that were in before too', () => {
    const { answers, tell } = poll();
    const told = vi.fn();
    tell(1, 'b');
    answers.each(told);
    expect(told.mock.calls).toEqual([['b', 1]]);
    tell(0, 'a');
    expect(told.mock.calls).toEqual([
      ['b', 1],
      ['a', 0],
    ]);
  });

  it('tells an answer once to those who begin to listen on account of it', () => {
    const { answers, tell } = poll();
    const told = vi.fn();
    answers.decide(
      ([first]) => first,
      () => answers.each(told),
    );
    tell(0, 'a');
    expect(told.mock.calls).toEqual([['a', 0]]);
    tell(2, 'c');
    expect(told).toHaveBeenCalledTimes(2);
  });
});
