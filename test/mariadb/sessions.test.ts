import { describe, it } from 'vitest';
import { commitsHang, statementComesLate, type SessionServer } from '../sql/sessions.js';
import type { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { ownMariaDb, urlBy } from './server.js';

const sessionsOf = (server: MariaDbServer): SessionServer => ({
  port: server.port,
  locks: (options, port = server.port) => openSqlLocks({ mysql: urlBy({ port }), ...options }),
  sessions: async () => {
    const text = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
    return (await server.query(text)).length;
  },
  hangCommits: async (hang) => {
    await server.query('SET GLOBAL rpl_semi_sync_master_timeout = 3600000');
    await server.query(`SET GLOBAL rpl_semi_sync_master_enabled = ${Number(hang)}`);
  },
});

describe('The sessions of locks in MariaDB', () => {
  it('leave no lock behind when a statement reaches the server after its attempt was undone [G978]', async () => {
    await statementComesLate(sessionsOf(await ownMariaDb()));
  });

  it('are no more than documented while commits hang, however often a statement is given up [G979]', async () => {
    const server = await ownMariaDb({ 'log-bin': 'log', 'binlog-format': 'ROW' });
    const locks = await openSqlLocks({ mysql: server.url, commandTimeoutMs: 200 });
    await commitsHang(sessionsOf(server), '', locks);
  });
});
