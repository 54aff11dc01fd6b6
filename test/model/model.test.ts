import { describe, expect, it } from 'vitest';
import { explore } from './explorer.js';
import { redlock } from './redlock.js';
import { MUTANTS, SHORT } from './settings.js';

describe('fencing over a Redlock', () => {
  it.each(Object.keys(SHORT))('the fencing of a Redlock holds in every state of the model: %s [G21]', (name) => {
    const { states, isPartial, problem, trace } = explore(redlock(SHORT[name]!));
    expect({ problem, trace }).toEqual({ problem: undefined, trace: [] });
    expect(isPartial).toBe(false);
    expect(states).toBeGreaterThan(1_000);
  });

  it.each(Object.keys(MUTANTS))('would not hold, and that is found: %s', (name) => {
    const { problem, trace } = explore(redlock(MUTANTS[name]!));
    expect(problem).toBeDefined();
    expect(trace.at(-1)).toContain('reads');
  });
});
