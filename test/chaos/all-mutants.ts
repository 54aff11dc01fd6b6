import { MUTANTS, type Mutant } from './mutants.js';
import { SQL_MUTANTS } from './sql-mutants.js';
import { TOPOLOGY_IDS, TOPOLOGIES, type TopologyId } from './topologies.js';

/** All mutants, each with the topology by which it is known to be caught. */
export const ALL_MUTANTS: Readonly<Record<string, Mutant & { topology: TopologyId }>> = {
  ...withTopology(MUTANTS, 'redis'),
  ...withTopology(SQL_MUTANTS, 'postgres'),
};
export const MUTANT_NAMES = Object.keys(ALL_MUTANTS);

function withTopology(mutants: Readonly<Record<string, Mutant>>, store: 'redis' | 'postgres') {
  return Object.fromEntries(
    Object.entries(mutants).map(([name, mutant]) => {
      const fits = (id: TopologyId) => TOPOLOGIES[id].store === store && TOPOLOGIES[id].nodes === mutant.nodes;
      return [name, { ...mutant, topology: TOPOLOGY_IDS.find(fits)! }];
    }),
  );
}
