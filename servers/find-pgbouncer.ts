import { join } from 'node:path';
import { privateFolder } from './find-postgres.js';
import { firstError, firstIn, foldersOnPath } from './find-redis-server.js';
import { libraryPath, unpackProgram } from './unpack-program.js';

/**
 * The path of a PgBouncer: the first of the `PATH`, `/usr/sbin` and the private copy in `.pgbouncer/`; or else one is unpacked there from
 * the distribution's packages. Needs no root, installs nothing, and may run in two processes at once.
 */
export async function providePgBouncer(): Promise<string> {
  const own = privateFolder('pgbouncer');
  const found = firstIn([...foldersOnPath(), '/usr/sbin', own], 'pgbouncer');
  if (found !== undefined) return found;
  try {
    await unpackProgram(own, {
      executable: 'pgbouncer',
      async download(apt) {
        await apt.get([], '--quiet', 'update');
        const missing = await apt.missing('pgbouncer');
        await apt.download(missing.filter((name) => name === 'pgbouncer' || /^lib(c-ares|event)/.test(name)));
      },
      wrapperScript: (tree) => `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="${libraryPath(tree)}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/unpacked/usr/sbin/pgbouncer" "$@"
`,
    });
  } catch (cause) {
    throw new Error(
      `No PgBouncer on the PATH or in .pgbouncer/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'install it (`apt-get install pgbouncer`).',
      { cause },
    );
  }
  return join(own, 'pgbouncer');
}
