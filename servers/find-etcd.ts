import { join } from 'node:path';
import { firstError, firstIn, foldersOnPath, ownFolder } from './find-redis-server.js';
import { unpackProgram } from './unpack-program.js';

/**
 * The path of an etcd: the first of the `PATH` and the private copy in `.etcd/`; or else one is unpacked there from the distribution's
 * packages. Needs no root, installs nothing, and may run in two processes at once.
 */
export async function provideEtcd(own = ownFolder('.etcd')): Promise<string> {
  const found = firstIn([...foldersOnPath(), own], 'etcd');
  if (found !== undefined) return found;
  try {
    await unpackProgram(own, {
      executable: 'etcd',
      async download(apt) {
        await apt.get([], '--quiet', 'update');
        await apt.download(['etcd-server']);
      },
      wrapperScript: () => '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\nexec "$here/unpacked/usr/bin/etcd" "$@"\n',
    });
  } catch (cause) {
    throw new Error(
      `No etcd on the PATH or in .etcd/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'install it (`apt-get install etcd-server`, `brew install etcd`).',
      { cause },
    );
  }
  return join(own, 'etcd');
}
