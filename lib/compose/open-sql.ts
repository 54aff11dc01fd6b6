import type { LockBackend } from '../core/backend/lock-backend.js';
import { MYSQL } from '../stores/sql/mysql/mysql-doctor.js';
import { MysqlNode } from '../stores/sql/mysql/mysql-node.js';
import { openMysql } from '../stores/sql/mysql/mysql-source.js';
import { quotedTable } from '../stores/sql/options.js';
import { POSTGRES } from '../stores/sql/postgres/postgres-doctor.js';
import { PostgresNode } from '../stores/sql/postgres/postgres-node.js';
import { openPostgres } from '../stores/sql/postgres/postgres-source.js';
import { reportOnSql } from '../stores/sql/sql-doctor.js';
import type { ResolvedSqlLockOptions } from './sql-lock-options.js';

/** Opens locks in a table of PostgreSQL, MySQL or MariaDB. */
export async function openSqlBackend(
  { backend, commandTimeoutMs, createTable, keepMs, table }: ResolvedSqlLockOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const quoted = quotedTable(table, backend.kind);
  const settings = { table: quoted, createTable, commandTimeoutMs, keepMs, processName, now };
  if (backend.kind === 'mysql') {
    const source = await openMysql(backend.source, commandTimeoutMs, table.includes('.'));
    const node: MysqlNode = new MysqlNode(source, settings, {
      report: (timeoutMs) => reportOnSql(MYSQL, node, quoted, timeoutMs),
    });
    return node;
  }
  const source = await openPostgres(backend.source, commandTimeoutMs);
  const node: PostgresNode = new PostgresNode(source, settings, {
    report: (timeoutMs) => reportOnSql(POSTGRES, node, quoted, timeoutMs),
  });
  return node;
}
