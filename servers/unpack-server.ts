import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Unpacks redis-server from the packages of Debian or Ubuntu into `target`; `target/redis-server` starts it.
 * Two processes may do it at once: each works in a folder of its own and publishes by an atomic rename.
 */
export async function unpackRedisServer(target: string): Promise<void> {
  const work = join(target, `unpacking-${process.pid}`);
  const packages = join(work, 'packages');
  const tree = join(work, 'unpacked');
  const wrapper = join(work, 'redis-server');
  try {
    for (const folder of ['state/lists/partial', 'cache/archives/partial', 'packages', 'unpacked']) {
      mkdirSync(join(work, folder), { recursive: true });
    }
    await downloadPackages(work, packages);
    for (const file of readdirSync(packages)) await run('dpkg', ['-x', join(packages, file), tree]);
    writeFileSync(wrapper, wrapperScript(tree), { mode: 0o755 });
    await run(wrapper, ['--version']);
    // The wrapper comes last: whoever sees it sees a complete tree. A tree already there is another process's.
    renameUnlessTaken(tree, join(target, 'unpacked'));
    renameSync(wrapper, join(target, 'redis-server'));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** apt with folders of its own, so that it works before any `apt-get update`, without root and without a lock. */
async function downloadPackages(work: string, destination: string): Promise<void> {
  const options = [
    `Dir::State=${join(work, 'state')}`,
    `Dir::Cache=${join(work, 'cache')}`,
    // The system's own record of what is installed: those libraries need no second copy.
    'Dir::State::status=/var/lib/dpkg/status',
    // When root runs this, apt would turn into a user who may not write into our folders.
    'APT::Sandbox::User=root',
    'Acquire::Languages=none',
    'Acquire::Retries=3',
  ].flatMap((option) => ['-o', option]);
  const limits = { cwd: destination, timeout: 180_000, maxBuffer: 2 ** 24, env: { ...process.env, LC_ALL: 'C' } };
  const apt = async (...args: string[]): Promise<string> =>
    (await run('apt-get', [...options, ...args], limits)).stdout;

  await apt('--quiet', 'update');
  const plan = await apt('--simulate', '--no-install-recommends', 'install', 'redis-tools');
  // "Inst name (version)" is new here; "Inst name [old] (version)" would only upgrade a library that is there already.
  const missing = [...plan.matchAll(/^Inst (\S+) \(/gm)].map((match) => match[1]!);
  // The binary is in redis-tools; redis-server holds the link that gives it its name.
  await apt('--quiet', 'download', ...new Set(['redis-server', 'redis-tools', ...missing]));
}

/** Finds the unpacked libraries from its own place, so that this one path starts the server. `exec` keeps the pid. */
function wrapperScript(tree: string): string {
  const files = readdirSync(tree, { recursive: true, encoding: 'utf8' });
  const folders = new Set(files.filter((file) => /\.so(\.|$)/.test(file)).map((file) => dirname(file)));
  const libraries = ['usr/lib', ...folders].map((folder) => `$here/unpacked/${folder}`).join(':');
  return `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="${libraries}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/unpacked/usr/bin/redis-server" "$@"
`;
}

function renameUnlessTaken(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
