/** A system whose states can all be listed: its initial states, and the states that follow a state. */
export interface Model<State> {
  initial: State[];
  /** All possible next steps, with their names, which only a trace needs. */
  next(state: State): Iterable<readonly [step: () => string, state: State]>;
  /** The error of this state, if there is one. */
  problem(state: State): string | undefined;
  /** Equal for equal states; different for others. */
  key(state: State): string;
}

export interface Exploration {
  states: number;
  transitions: number;
  /** Steps from an initial state to the farthest one. */
  depth: number;
  seconds: number;
  /** It stopped at the limit, with unvisited states left. */
  isPartial: boolean;
  /** The first problem found, which has the fewest steps, and how it occurs. */
  problem?: string;
  trace: string[];
}

/** Visits every reachable state, nearest states first, until one has a problem. */
export function explore<State extends object>(model: Model<State>, limit = Infinity): Exploration {
  const started = performance.now();
  const seen = new Map<string, number>();
  const parents: number[] = [];
  const levels = { now: [] as State[], next: [] as State[] };
  let [transitions, depth, problem, at] = [0, 0, undefined as string | undefined, -1];

  const visit = (state: State, parent: number): boolean => {
    const key = model.key(state);
    if (seen.has(key)) return false;
    at = parents.push(parent) - 1;
    seen.set(key, at);
    levels.next.push(state);
    problem = model.problem(state);
    return problem !== undefined;
  };
  const search = (): boolean => {
    if (model.initial.some((state) => visit(state, -1))) return true;
    for (let index = 0; levels.next.length > 0 && seen.size < limit; depth++) {
      [levels.now, levels.next] = [levels.next, []];
      for (const state of levels.now) {
        if (seen.size >= limit) break;
        for (const [, successor] of model.next(state)) {
          transitions++;
          if (visit(successor, index)) return true;
        }
        index++;
      }
    }
    return false;
  };
  const found = search();
  return {
    states: seen.size,
    transitions,
    depth,
    seconds: (performance.now() - started) / 1_000,
    isPartial: !found && levels.next.length > 0,
    problem,
    trace: found ? replay(model, seen, parents, at) : [],
  };
}

/** Only keys and parents are stored, so the way to a state is computed again. */
function replay<State extends object>(
  model: Model<State>,
  seen: Map<string, number>,
  parents: number[],
  last: number,
): string[] {
  const path: number[] = [];
  for (let at = last; at >= 0; at = parents[at]!) path.unshift(at);
  let state = model.initial.find((candidate) => seen.get(model.key(candidate)) === path[0])!;
  return path.slice(1).map((at) => {
    for (const [step, successor] of model.next(state)) {
      if (seen.get(model.key(successor)) !== at) continue;
      state = successor;
      return step();
    }
    throw new Error('the model does not repeat itself');
  });
}
