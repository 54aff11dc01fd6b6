import { openOn, urlsOf } from './library.mjs';

/** The library with node-redis. */
export const open = (terms) => openOn(sourceOf(terms), terms);

function sourceOf({ ports, isCluster }) {
  const clients = urlsOf(ports).map((url) => ({ url }));
  if (isCluster) return { redis: { rootNodes: clients } };
  return clients.length > 1 ? { redlock: clients } : { redis: clients[0] };
}
