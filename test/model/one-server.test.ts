import { describe, expect, it } from 'vitest';
import { explore } from './explorer.js';
import { MUTANTS, SHORT } from './one-server.settings.js';
import { oneServer } from './one-server.js';

describe('fencing by one server', () => {
  it.each(Object.keys(SHORT))(
    'the tokens of a lock rise in every state of the model of one server: %s [G247]',
    (name) => {
      const { states, isPartial, problem, trace } = explore(oneServer(SHORT[name]!));
      expect({ problem, trace }).toEqual({ problem: undefined, trace: [] });
      expect(isPartial).toBe(false);
      expect(states).toBeGreaterThan(10_000);
    },
  );

  it.each(Object.keys(MUTANTS))(
    'the tokens of a lock would not rise, and the model of one server finds it: %s',
    (name) => {
      const { problem, trace } = explore(oneServer(MUTANTS[name]!));
      expect(problem).toBeDefined();
      expect(trace.at(-1)).toContain('gets');
    },
  );
});
