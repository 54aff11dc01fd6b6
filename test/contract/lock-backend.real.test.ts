import { connectedSql } from '../support/claims.js';
import { PostgresServer } from '../support/postgres-server.js';
import { describeContract } from './describe-contract.js';

// On a real server: the database measures time by itself.
describeContract('a table of a PostgreSQL', async () => {
  const server = await PostgresServer.start();
  return {
    backend: await connectedSql({ postgres: server.url, commandTimeoutMs: 20_000 }),
    checkLeft: async (prefix) => {
      const held = await server.query(
        'SELECT resource_lock_key AS key FROM resource_lock WHERE expires_at > clock_timestamp()',
      );
      if (held.some(({ key }) => String(key).startsWith(prefix))) throw new Error('A released lock is still held.');
    },
    tearDown: () => server.stop(),
  };
});
