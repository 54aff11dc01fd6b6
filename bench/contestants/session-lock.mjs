/**
 * Locks of a database session: `pg_advisory_lock` of PostgreSQL, and `GET_LOCK` of MariaDB. They last as long as their
 * connection.
 */
import { reconnecting } from './sql-clients.mjs';

const STATEMENTS = {
  postgres: {
    acquire: 'SELECT pg_advisory_lock(hashtextextended($1, 0)) IS NOT NULL AS got',
    release: 'SELECT pg_advisory_unlock(hashtextextended($1, 0)) AS done',
  },
  mariadb: { acquire: 'SELECT GET_LOCK(?, 3600) = 1 AS got', release: 'SELECT RELEASE_LOCK(?) = 1 AS done' },
};

export function open({ ports: [port], settings: { dialect } }) {
  const { acquire, release } = STATEMENTS[dialect];
  const connection = reconnecting(dialect, port);
  return {
    async turn(key, work) {
      const session = await connection();
      const [{ got }] = await session.rows(acquire, [key]);
      if (!got) throw new Error(`${key} was not acquired`);
      await work({ held: () => session.isOpen });
      const [{ done }] = await session.rows(release, [key]);
      return Boolean(done);
    },
    close: async () => (await connection()).end(),
  };
}
