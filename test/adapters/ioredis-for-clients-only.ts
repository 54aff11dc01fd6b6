import { LockOptionsError } from '../../lib/index.js';
import { ioredis as driver } from '../../lib/stores/redis/ioredis/ioredis-driver.js';

/** Replaces the driver for ioredis where URLs are opened with node-redis: as if ioredis were not installed. */
export const ioredis = {
  ...driver,
  load: () => Promise.reject(new LockOptionsError('URLs are opened with node-redis here.')),
};
