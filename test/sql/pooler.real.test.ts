import { spawn } from 'node:child_process';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { candidatePort } from '../../servers/candidate-port.js';
import { providePgBouncer } from '../../servers/find-pgbouncer.js';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { NOBODY } from '../../servers/launch-postgres.js';
import { connectedSql, freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import type { PostgresServer } from '../support/postgres-server.js';
import { until } from '../support/until.js';
import { postgresOfFile } from './stage.js';

/**
 * Starts a PgBouncer that assigns its three connections per transaction.
 * @returns its URL
 */
async function pooler(server: PostgresServer, setting: string): Promise<string> {
  const program = await providePgBouncer();
  const dir = await mkdtemp(join(tmpdir(), 'pgbouncer-'));
  if (NOBODY.uid !== undefined) await chown(dir, NOBODY.uid, NOBODY.gid);
  const [port, file, users] = [await candidatePort(), join(dir, 'pgbouncer.ini'), join(dir, 'users')];
  const settings = [
    '[databases]',
    `* = host=127.0.0.1 port=${server.port}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = trust',
    `auth_file = ${users}`,
    'pool_mode = transaction',
    'default_pool_size = 3',
    setting,
  ];
  await writeFile(users, '"postgres" ""\n');
  await writeFile(file, `${settings.join('\n')}\n`);
  const child = spawn(program, [file], { ...NOBODY, stdio: ['ignore', 'ignore', 'pipe'] });
  killWithParent(child);
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await rm(dir, { recursive: true });
  });
  let output = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
  await until(() => output.includes('process up'), { what: 'the pooler is up' });
  return `postgres://postgres@127.0.0.1:${port}/postgres`;
}

// There it cannot be set for the session.
const server = await postgresOfFile({ default_transaction_isolation: 'serializable' });

describe('Locks in PostgreSQL behind a pooler that assigns connections per transaction', () => {
  it.each([
    ['refuses', ''],
    ['ignores', 'ignore_startup_parameters = options'],
  ])(
    'are exclusive and waited for without messages, where it %s settings of the session [G671]',
    async (_, setting) => {
      const postgres = await pooler(server, setting);
      const services = await Promise.all([1, 2, 3].map(() => openSqlLocks({ postgres })));
      const key = freshKey();
      const tokens: (number | undefined)[] = [];
      let [inside, together] = [0, 0];
      const calls = Array.from({ length: 90 }, (_, at) =>
        services[at % 3]!.withLock(key, { waitMs: 240_000 }, async ({ fencingToken }) => {
          together = Math.max(together, ++inside);
          tokens.push(fencingToken);
          await new Promise((resolve) => setTimeout(resolve, 2));
          inside--;
        }),
      );
      await Promise.all(calls);
      expect(together).toBe(1);
      expect(tokens).toEqual([...new Set(tokens)].sort((one, other) => Number(one) - Number(other)));
      expect(tokens).toHaveLength(90);
    },
  );

  it('warn once that no messages arrive, and what to do [G672]', async () => {
    const backend = await connectedSql({ postgres: await pooler(server, '') });
    onTestFinished(() => backend.close());
    const warnings: string[] = [];
    const onWarning = (message: string) => warnings.push(message);
    const listener = { onTurn: () => {}, onMayBeFree: () => {}, onTaken: () => {}, onWarning };
    for (const key of [freshKey(), freshKey()]) backend.waitQueue!.listen(key, listener);
    await until(() => warnings.length > 0, { what: 'it is found deaf' });
    backend.waitQueue!.listen(freshKey(), listener);
    expect(backend.waitQueue!.isListening(freshKey())).toBe(false);
    expect(warnings).toEqual([
      expect.stringMatching(/does not deliver notifications .* Give the address of PostgreSQL itself/),
    ]);
  });
});
