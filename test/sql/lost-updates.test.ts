import { describeLostUpdates } from './lost-updates.js';
import { expire, locksOn, postgresOfFile } from './stage.js';

const server = await postgresOfFile();

describeLostUpdates(
  'postgres',
  async () => ({
    url: server.url,
    query: (text) => server.query(text),
    openLocks: () => locksOn(server),
    ttlMs: 30_000,
    endLease: (key) => expire(server, key),
  }),
  5,
);
