import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

// Puts another Nest and another client of Redis into node_modules, and runs the tests that depend on them:
// npm run test:peers -- 11 ioredis@5.4.0 [arguments for Vitest]
// `npm ci` takes them out again.

const root = fileURLToPath(new URL('..', import.meta.url));
const [nest, client, ...vitestArguments] = process.argv.slice(2);
if (!/^1[12]$/.test(nest ?? '') || !/^(ioredis|redis)@\d+(\.\d+){0,2}$/.test(client ?? '')) {
  console.error(
    'Which Nest, 11 or 12, and which client? For example: npm run test:peers -- 11 ioredis@5.4.0, or 12 redis@5.10.0',
  );
  process.exit(2);
}

/** The majors of the packages that go with Nest 11. Nest 12 is what `npm ci` installs. */
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
/** Where a test meets Nest or the client. Those of other folders do so by the same code, and some compile the sources of the library. */
const TESTS = [
  ...['nest', 'page', 'schedule', 'terminus', 'testing'],
  ...['adapters', 'contract', 'scripts', 'backends', 'replicas', 'doctor', 'resource'],
].map((folder) => `test/${folder}`);

const packages = [client];
if (nest === '11') packages.push(...Object.entries(NEST_11).map(([name, major]) => `@nestjs/${name}@${major}`));
// Development tools may name newer peers than these: the tests find out whether they work.
run('npm', ['install', '--no-save', '--no-package-lock', '--legacy-peer-deps', ...packages]);
// A test of what Nest 12 alone can do says so in its title. The examples are written for what `npm ci` installs.
const left = nest === '11' ? String.raw`examples of the README|\[Nest 12\]` : 'examples of the README';
const filter = ['-t', `^(?!.*(${left}))`];
const tests = vitestArguments.length > 0 ? vitestArguments : TESTS;
const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/vitest.config.ts'];
// All that gives a URL is opened with node-redis.
if (client.startsWith('redis@')) process.env.REDIS_CLIENT = 'node-redis';
run(process.execPath, [...vitest, ...filter, ...tests]);

function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}
