/** Where the locks are. */
export interface Topology {
  store: 'redis' | 'postgres' | 'mariadb';
  nodes: number;
}

export const TOPOLOGIES = {
  single: { store: 'redis', nodes: 1 },
  'redlock-3': { store: 'redis', nodes: 3 },
  'redlock-5': { store: 'redis', nodes: 5 },
  postgres: { store: 'postgres', nodes: 1 },
  mariadb: { store: 'mariadb', nodes: 1 },
} as const satisfies Record<string, Topology>;
export type TopologyId = keyof typeof TOPOLOGIES;
export const TOPOLOGY_IDS = Object.keys(TOPOLOGIES) as TopologyId[];
