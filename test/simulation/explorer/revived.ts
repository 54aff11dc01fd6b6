import type { Revived } from '../../chaos/history.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import { placesOf } from './queue-witness.js';

/** The readers and the places in queues that a server has when it comes back with old data, or replaces its primary. */
export function revivedOn({ data }: SimulatedServer): Revived {
  const values = data.names.map((name) => data.entry(name)?.value);
  const crowds = values.map((value) => (typeof value === 'string' ? /^~s@(\d{16})/.exec(value) : null));
  return {
    tokens: crowds.flatMap((crowd) => (crowd ? [Number(crowd[1])] : [])),
    tickets: values.flatMap(placesOf).map(({ ticket }) => ticket),
  };
}
