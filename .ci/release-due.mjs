import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

// Says for .github/workflows/release.yml whether this commit is to be staged on npm: it has a version that is neither tagged, as
// the staged ones are, nor on npm, no change waits for the next one, and `repository` is set, without which npm refuses the provenance.

const root = fileURLToPath(new URL('..', import.meta.url));
const { name, version, repository } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
const waiting = readdirSync(`${root}.changeset`).filter((file) => file.endsWith('.md') && file !== 'README.md');
const isDue = repository !== undefined && waiting.length === 0 && !isTagged() && !isPublished();
console.log(`version=${version}\nis-due=${isDue}`);

function isTagged() {
  const { status, stdout } = spawnSync('git', ['tag', '--list', `v${version}`], { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(`git could not tell whether v${version} is tagged.`);
  return stdout.trim() !== '';
}

function isPublished() {
  const { status, stdout } = spawnSync('npm', ['view', `${name}@${version}`, 'version', '--json'], {
    encoding: 'utf8',
  });
  const answer = JSON.parse(stdout || '""');
  if (answer?.error?.code === 'E404') return false; // npm does not know the package
  if (status !== 0) throw new Error(`npm could not tell whether ${name} ${version} is published: ${stdout}`);
  return answer === version; // nothing is printed where it lacks the version
}
