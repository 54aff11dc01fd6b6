import { describeLostUpdates } from '../sql/lost-updates.js';
import { leaseHasEnded, mariaDb, openAnother } from './server.js';

describeLostUpdates(
  'mysql',
  async () => {
    const server = await mariaDb();
    const query = (text: string) => server.query(text);
    // A guard keeps the row from all changes: the lease is short, and ends by itself.
    return { url: server.url, query, openLocks: openAnother, ttlMs: 1_000, endLease: leaseHasEnded };
  },
  2,
);
