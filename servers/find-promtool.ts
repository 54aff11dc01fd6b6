import { join } from 'node:path';
import { firstError, firstIn, foldersOnPath, ownFolder } from './find-redis-server.js';
import { unpackProgram } from './unpack-program.js';

/** Its package, which also has a Prometheus. */
const PACKAGE = 'prometheus';

/**
 * The path of a promtool, which checks the rules of Prometheus: the first of the `PATH` and the private copy in `.prometheus/`; or else
 * one is unpacked there from the distribution's packages. Needs no root, installs nothing, and may run in two processes at once.
 */
export async function providePromtool(): Promise<string> {
  const own = ownFolder('.prometheus');
  const found = firstIn([...foldersOnPath(), own], 'promtool');
  if (found !== undefined) return found;
  try {
    await unpackProgram(own, {
      executable: 'promtool',
      async download(apt) {
        await apt.get([], '--quiet', 'update');
        await apt.download([PACKAGE]);
      },
      wrapperScript: () =>
        '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\nexec "$here/unpacked/usr/bin/promtool" "$@"\n',
    });
  } catch (cause) {
    throw new Error(
      `No promtool on the PATH or in .prometheus/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        `install it (\`apt-get install ${PACKAGE}\`).`,
      { cause },
    );
  }
  return join(own, 'promtool');
}
