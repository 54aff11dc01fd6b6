import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Installs a version of Node.js into a temporary folder, from the npm package that carries the binary.
 * @param version '22', '22.12' or '22.12.0'
 * @returns the folder of the program `node`, and what removes it
 */
export function installNode(version) {
  const folder = mkdtempSync(join(tmpdir(), 'node-'));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const name = `node-${process.platform}-${process.arch}`;
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--prefix', folder, `${name}@${version}`];
  const { status } = spawnSync('npm', args, { stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) {
    remove();
    throw new Error(`npm could not install ${name}@${version}.`);
  }
  return { bin: join(folder, 'node_modules', name, 'bin'), remove };
}
