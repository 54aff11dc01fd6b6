export { LockHealthIndicator, type LockPingCheckOptions } from './lock.health.js';
