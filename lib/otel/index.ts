export { otelLocks, type OtelLocksOptions } from './otel-locks.js';
