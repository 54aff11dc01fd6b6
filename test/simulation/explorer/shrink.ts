import type { Copies } from './copies.js';
import type { Plan } from './plan.js';
import { simulate } from './simulate.js';

/** How long a shorter run may be, in seconds. */
const SECONDS = [0.5, 1, 2, 3, 4];

/**
 * Makes a failing plan small: fewer faults (ddmin), then less of everything else. The rest still breaks the rule.
 * @returns undefined if it does not break the rule
 */
export async function shrink(plan: Plan, rule: string, copies: Copies): Promise<Plan | undefined> {
  const fails = async (smaller: Plan) => {
    const { violations } = await simulate(smaller, copies);
    return violations.some((violation) => violation.rule === rule);
  };
  if (!(await fails(plan))) return undefined;
  let small = await withFewerFaults(plan, fails);
  for (const smaller of candidates(small)) if (await fails(smaller(small))) small = smaller(small);
  return withFewerFaults(small, fails);
}

type Fails = (plan: Plan) => Promise<boolean>;

async function withFewerFaults(plan: Plan, fails: Fails): Promise<Plan> {
  let { faults } = plan;
  for (let parts = 2; faults.length > 0;) {
    const size = Math.ceil(faults.length / parts);
    const without = await firstThat(parts, async (part) => {
      const rest = faults.filter((_, at) => at < part * size || at >= (part + 1) * size);
      return rest.length < faults.length && (await fails({ ...plan, faults: rest })) ? rest : undefined;
    });
    if (without) {
      faults = without;
      parts = Math.max(2, parts - 1);
    } else if (size === 1) break;
    else parts = Math.min(faults.length, parts * 2);
  }
  return { ...plan, faults };
}

async function firstThat<T>(count: number, find: (index: number) => Promise<T | undefined>): Promise<T | undefined> {
  for (let index = 0; index < count; index++) {
    const found = await find(index);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Ways to make a plan smaller, each tried once: only ways that the fault does not depend on. */
function candidates({ seconds, processes, keys, parallel, features, faults }: Plan): ((plan: Plan) => Plan)[] {
  const lastAt = Math.max(0, ...faults.map(({ at, forUs }) => at + forUs)) / 1e6;
  // Each process has to wait for another one after the faults.
  const needed = Math.max(2, ...faults.map(({ process = 0 }) => process + 1));
  return [
    ...SECONDS.filter((less) => less < seconds && less > lastAt).map((less) => (plan: Plan) => shorter(plan, less)),
    ...features.map((name) => (plan: Plan) => ({ ...plan, features: plan.features.filter((each) => each !== name) })),
    ...[2, 3].filter((less) => less >= needed && less < processes).map((less) => (plan: Plan) => ({ ...plan, processes: Math.min(less, plan.processes) })), // prettier-ignore
    ...[1, 2].filter((less) => less < keys).map((less) => (plan: Plan) => ({ ...plan, keys: Math.min(less, plan.keys) })), // prettier-ignore
    ...[1, 2].filter((less) => less < parallel).map((less) => (plan: Plan) => ({ ...plan, parallel: Math.min(less, plan.parallel) })), // prettier-ignore
  ];
}

function shorter(plan: Plan, seconds: number): Plan {
  return { ...plan, seconds: Math.min(seconds, plan.seconds) };
}
