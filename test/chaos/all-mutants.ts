import type { CaughtMutant, Mutant } from './mutant.js';
import { MUTANTS } from './mutants.js';
import { SQL_MUTANTS } from './sql-mutants.js';
import { TOPOLOGY_IDS, TOPOLOGIES, type TopologyId } from './topologies.js';

/** All mutants that chaos catches, each with the topology by which it is known to be caught. */
export const ALL_MUTANTS: Readonly<Record<string, CaughtMutant & { topology: TopologyId }>> = {
  ...withTopology(MUTANTS, 'redis'),
  ...withTopology(SQL_MUTANTS, 'postgres'),
};
export const MUTANT_NAMES = Object.keys(ALL_MUTANTS);

function withTopology(mutants: Readonly<Record<string, Mutant | CaughtMutant>>, store: 'redis' | 'postgres') {
  return Object.fromEntries(
    Object.entries(mutants).flatMap(([name, mutant]) => {
      if (!('caughtBy' in mutant)) return [];
      const fits = (id: TopologyId) => TOPOLOGIES[id].store === store && TOPOLOGIES[id].nodes === mutant.nodes;
      return [[name, { ...mutant, topology: TOPOLOGY_IDS.find(fits)! }]];
    }),
  );
}
