/**
 * Checks the workflows in .github/workflows: that what they run is there, that they hold no more rights than they need, and that
 * the versions they test are those that package.json promises. Prints what is wrong, and exits with 1.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { load } from 'js-yaml';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = join(root, '.github/workflows');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const problems = [];
/** What needs more than to read. */
const WRITES = { 'release.yml': ['contents', 'pull-requests', 'id-token'], 'codeql.yml': ['security-events'] };
/** What a job with the right `id-token` may do. */
const PUBLISHING_ACTIONS = ['actions/setup-node', 'actions/download-artifact'];
const PUBLISHING_COMMAND = /^npm stage publish \.\/\S+\.tgz(?: --[\w-]+(?:[ =]\w+)?)*$/;
/** Triggers that run with the rights of this repository on what strangers send. */
const UNSAFE = ['pull_request_target', 'workflow_run', 'issue_comment'];

for (const file of readdirSync(folder)) {
  const text = readFileSync(join(folder, file), 'utf8');
  const check = (isGood, problem) => isGood || problems.push(`${file}: ${problem}`);
  const { on, permissions, jobs } = load(text);
  for (const trigger of UNSAFE) check(!(trigger in on), `${trigger} is not safe.`);
  check(permissions !== undefined, 'without permissions at the top, jobs have those of the repository.');
  for (const [right, level] of [{ permissions }, ...Object.values(jobs)].flatMap(rightsOf)) {
    const isNeeded = level === 'read' || WRITES[file]?.includes(right);
    check(isNeeded, `${right}: ${level} is more than it needs; else name it in .ci/workflows.mjs.`);
  }
  for (const job of Object.values(jobs)) {
    check(job['timeout-minutes'] <= 90, `a job on ${job['runs-on']} has no timeout-minutes.`);
    for (const { run } of job.steps) if (run !== undefined) checkCommand(run, check);
    const mayPublish = rightsOf({ permissions: job.permissions ?? permissions }).some(
      ([right]) => right === 'id-token',
    );
    if (mayPublish) for (const step of job.steps) checkPublishingStep(step, check);
  }
  for (const [, script] of text.matchAll(/\bnpm run (?:--silent )?([\w:]+)/g)) {
    check(script in manifest.scripts, `package.json has no script ${script}.`);
  }
  for (const [line, comment = ''] of text.matchAll(/^.*\buses:.*?(#.*)?$/gm)) {
    check(/@[0-9a-f]{40} /.test(line) && /^# v\d/.test(comment), `pin by commit and name the version: ${line.trim()}`);
  }
}
checkMatrix(load(readFileSync(join(folder, 'ci.yml'), 'utf8')).jobs.peers.strategy.matrix.include);

for (const problem of problems) console.error(problem);
process.exitCode = problems.length > 0 ? 1 : 0;

/** "read-all" and "write-all" count as a right of that name. */
function rightsOf({ permissions = {} }) {
  return typeof permissions === 'string' ? [[permissions, 'all']] : Object.entries(permissions);
}

function checkCommand(run, check) {
  // What strangers can name, such as a branch, would be a part of the script.
  check(!/\$\{\{(?!\s*matrix\.)/.test(run), `hand values over by env: ${run}`);
  for (const [, path] of run.matchAll(/\b(?:node|bash) (\S+)/g)) {
    check(existsSync(join(root, path)), `${path} is not there.`);
  }
}

/**
 * Whatever runs in a job with `id-token` can publish: a dev tool, an install script, and the `.npmrc` of a checkout. Such a job takes the
 * tarball that another one packed, and stages it.
 */
function checkPublishingStep({ uses, run }, check) {
  const isGood = uses === undefined ? PUBLISHING_COMMAND.test(run) : PUBLISHING_ACTIONS.includes(uses.split('@')[0]);
  check(isGood, `a job with id-token only stages a tarball; it must not run: ${(run ?? uses).trim()}`);
}

/** The matrix is pairwise: each two versions of different things meet. All fit package.json, and the oldest that it allows is there. */
function checkMatrix(jobs) {
  const rows = jobs.map(({ client, ...row }) => ({ ...row, ...Object.fromEntries([client.split('@')]) }));
  const ranges = {
    node: manifest.engines.node,
    nest: manifest.peerDependencies['@nestjs/core'],
    ioredis: manifest.peerDependencies.ioredis,
    redis: manifest.peerDependencies.redis,
  };
  const kinds = Object.keys(ranges);
  const versions = kinds.map((kind) => [...new Set(rows.flatMap((row) => row[kind] ?? []).map(String))]);
  const fail = (problem) => problems.push(`ci.yml: ${problem}`);
  for (const [at, kind] of kinds.entries()) {
    const floors = floorsOf(ranges[kind]);
    for (const version of versions[at]) {
      if (!floors.some((floor) => fits(version, floor))) fail(`${kind} ${version} is not in ${ranges[kind]}.`);
    }
    for (const { major } of floors) {
      if (!versions[at].some((version) => version.split('.')[0] === major)) fail(`no job has ${kind} ${major}.`);
    }
    const [{ major, minor }] = floors;
    const isOldest = (version) => version === major || version.startsWith(`${major}.${minor}`);
    if (!versions[at].some(isOldest)) fail(`no job has ${kind} ${major}.${minor}, the oldest of ${ranges[kind]}.`);
    for (const [other, otherKind] of kinds.slice(0, at).entries()) {
      if (otherKind === 'ioredis') continue; // a job has one client
      for (const one of versions[at]) {
        for (const two of versions[other]) {
          const meet = rows.some((row) => String(row[kind]) === one && String(row[otherKind]) === two);
          if (!meet) fail(`${kind} ${one} and ${otherKind} ${two} meet in no job.`);
        }
      }
    }
  }
}

function floorsOf(range) {
  return [...range.matchAll(/(\^|>=)(\d+)\.(\d+)\.\d+/g)].map(([, kind, major, minor]) => ({ kind, major, minor }));
}

/** A version without a minor number stands for the newest of its major one. */
function fits(version, { kind, major, minor }) {
  const [ownMajor, ownMinor = Infinity] = version.split('.').map(Number);
  if (ownMajor === Number(major)) return ownMinor >= Number(minor);
  return kind === '>=' && ownMajor > Number(major);
}
