import { join } from 'node:path';
import { firstError, firstIn, foldersOnPath, isExecutable, ownFolder } from './find-redis-server.js';
import { libraryPath, unpackProgram, type Apt } from './unpack-program.js';

/** A Chromium without windows, which needs no desktop. */
const PACKAGE = 'chromium-headless-shell';

/**
 * The path of a Chromium: the first of `CHROMIUM`, the `PATH`, the private copy in `.chromium/`; or else one is unpacked there
 * from the distribution's packages. Needs no root, installs nothing, and may run in two processes at once.
 */
export async function provideChromium(): Promise<string> {
  const chosen = process.env.CHROMIUM;
  if (chosen && !isExecutable(chosen)) {
    throw new Error(`CHROMIUM must name an executable file, got "${chosen}": correct or unset it.`);
  }
  const own = ownFolder('.chromium');
  const found = chosen || firstIn([...foldersOnPath(), own], 'chromium');
  if (found) return found;
  try {
    await unpackProgram(own, { executable: 'chromium', download, wrapperScript });
  } catch (cause) {
    throw new Error(
      `No chromium on the PATH or in .chromium/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'install it (`apt-get install chromium`) or set CHROMIUM=/path/to/chromium.',
      { cause },
    );
  }
  return join(own, 'chromium');
}

async function download(apt: Apt): Promise<void> {
  await apt.get([], '--quiet', 'update');
  await apt.download(await apt.missing(PACKAGE));
}

/** Fonts are unpacked, too, where the system has none. */
function wrapperScript(tree: string): string {
  return `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="${libraryPath(tree)}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_SYSROOT="$here/unpacked"
exec "$here/unpacked/usr/lib/chromium/${PACKAGE}" "$@"
`;
}
