import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

// Puts another Nest or ioredis into node_modules, to run the tests with it: node .ci/install-peers.mjs 11 5.4.0
// `npm ci` takes it out again.

const [nest, ioredis] = process.argv.slice(2);
if (!/^1[12]$/.test(nest ?? '') || !/^\d+(\.\d+){0,2}$/.test(ioredis ?? '')) {
  console.error('Which Nest, 11 or 12, and which ioredis? For example: node .ci/install-peers.mjs 11 5.4.0');
  process.exit(2);
}

/** The majors that go with Nest 11. Nest 12 is what `npm ci` installs. */
const NEST_11 = {
  common: 11,
  core: 11,
  'event-emitter': 3,
  graphql: 13,
  microservices: 11,
  'platform-express': 11,
  'platform-fastify': 11,
  'platform-ws': 11,
  schedule: 6,
  terminus: 11,
  testing: 11,
  websockets: 11,
};

const packages = [`ioredis@${ioredis}`];
if (nest === '11') packages.push(...Object.entries(NEST_11).map(([name, major]) => `@nestjs/${name}@${major}`));
// Development tools may name newer peers than these: the tests find out whether they work.
const { status } = spawnSync('npm', ['install', '--no-save', '--no-package-lock', '--legacy-peer-deps', ...packages], {
  cwd: fileURLToPath(new URL('..', import.meta.url)),
  stdio: ['ignore', 'inherit', 'inherit'],
});
process.exitCode = status ?? 1;
