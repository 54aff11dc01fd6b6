import { describe, expect, it } from 'vitest';
import { Poll } from '../../lib/stores/redis/redlock/decisions.js';

/** A question to three nodes, answered as the test says. */
function poll() {
  const answers = new Poll<string>(3);
  return { answers, tell: (node: number, answer: string) => answers.take(node, answer) };
}

describe('A poll', () => {
  it('is decided once, by the first answers that allow it', () => {
    const { answers, tell } = poll();
    const seen: unknown[] = [];
    const settled: string[] = [];
    answers.decide(
      (given, open) => {
        seen.push([...given, open]);
        return open === 1 ? given.join() : undefined;
      },
      (decision) => settled.push(decision),
    );
    tell(2, 'c');
    tell(0, 'a');
    tell(1, 'b');
    expect(seen).toEqual([
      [undefined, undefined, 'c', 2],
      ['a', undefined, 'c', 1],
    ]);
    expect(settled).toEqual(['a,,c']);
  });

  it('tells each answer once to those who listen, those that were in before too', () => {
    const { answers, tell } = poll();
    const told: string[] = [];
    tell(1, 'b');
    answers.each((answer, node) => told.push(`${answer} by ${node}`));
    expect(told).toEqual(['b by 1']);
    tell(0, 'a');
    expect(told).toEqual(['b by 1', 'a by 0']);
  });

  it('tells an answer once to those who begin to listen on account of it', () => {
    const { answers, tell } = poll();
    const told: string[] = [];
    answers.decide(
      ([first]) => first,
      () => answers.each((answer) => told.push(answer)),
    );
    tell(0, 'a');
    expect(told).toEqual(['a']);
    tell(2, 'c');
    expect(told).toEqual(['a', 'c']);
  });
});
