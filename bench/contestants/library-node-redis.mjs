import { openOn } from './library.mjs';

/** The library with node-redis. */
export const open = (terms) => openOn({ redis: { url: `redis://127.0.0.1:${terms.ports[0]}` } }, terms);
