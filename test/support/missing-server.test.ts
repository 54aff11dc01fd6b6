import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it, onTestFinished, vi } from 'vitest';
import { providePostgres } from '../../servers/find-postgres.js';
import { provideEtcd } from '../../servers/find-etcd.js';
import { provideMysql } from '../../servers/find-mysql.js';
import { provideServer } from '../../servers/find-redis-server.js';

afterEach(() => void vi.unstubAllEnvs());

/** An empty folder is the whole PATH: there is no server, and no apt-get. */
async function noPrograms(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'no-programs-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  vi.stubEnv('PATH', folder);
  return folder;
}

it('a server that is not there and cannot be unpacked causes an error that says what to do', async () => {
  await noPrograms();
  const missing = provideServer({ name: 'missing-redict', executable: 'redict-server', suite: 'backports' });
  onTestFinished(() => rm(new URL('../../.redis/missing-redict', import.meta.url), { recursive: true, force: true }));
  await expect(missing).rejects.toThrow(
    'No redict-server on the PATH or in .redis/missing-redict/, and none could be unpacked by apt-get and dpkg ' +
      '(spawn apt-get ENOENT): install it (`apt-get install redict-server`), or put one into .redis/missing-redict/.',
  );
});

it('an etcd that is not there and cannot be unpacked causes an error that says what to do', async () => {
  const nothing = await noPrograms();
  await expect(provideEtcd(join(nothing, '.etcd'))).rejects.toThrow(
    'No etcd on the PATH or in .etcd/, and none could be unpacked by apt-get and dpkg (spawn apt-get ENOENT): ' +
      'install it (`apt-get install etcd-server`, `brew install etcd`).',
  );
});

it('a MySQL that is not there and cannot be unpacked causes an error that says what to do', async () => {
  const nothing = await noPrograms();
  vi.stubEnv('MYSQL_SERVER', '');
  await expect(provideMysql(join(nothing, '.mysql'))).rejects.toThrow(
    'No MySQL in .mysql/, and none could be unpacked by apt-get and dpkg (spawn apt-get ENOENT): ' +
      'set MYSQL_SERVER=/path/to/mysqld.',
  );
});

it('a wrong MYSQL_SERVER is refused, with what it must name', async () => {
  vi.stubEnv('MYSQL_SERVER', '/no/such/mysqld');
  await expect(provideMysql()).rejects.toThrow(
    'MYSQL_SERVER must name an executable mysqld, got "/no/such/mysqld": correct or unset it.',
  );
});

it.each(['/no/such/postgres', process.execPath])(
  'POSTGRES_SERVER=%s is refused, with what it must name',
  async (path) => {
    vi.stubEnv('POSTGRES_SERVER', path);
    await expect(providePostgres()).rejects.toThrow(
      `POSTGRES_SERVER must name an executable file that has initdb next to it, got "${path}": correct or unset it.`,
    );
  },
);
