/**
 * The floors of lib/, which `npm run lint` checks with dependency-cruiser: a room imports only from the rooms that it names here,
 * which stand before it in this list. So no import goes up and no two rooms import each other.
 */

const CORE = ['core/time', 'core/keys', 'core/backend', 'core/options'];
const NEST = ['@nestjs/common', '@nestjs/core'];
const SERVER = ['api', 'core/time', 'core/backend', 'stores/node'];
const REDIS = SERVER;

/** Each room of lib/, low to high, with the rooms and packages that it may import. `stores` stands for all rooms below it. */
export const ROOMS = {
  api: ['rxjs'],
  'core/time': [],
  'core/keys': ['api'],
  'core/backend': ['api', 'core/time'],
  'core/options': ['api', 'core/backend'],
  'core/locks': ['api', ...CORE, 'rxjs'],
  'core/service': ['api', ...CORE, 'core/locks', 'rxjs'],
  'stores/node': ['api', 'core/time', 'core/backend'],
  'stores/memory': ['api', 'core/time', 'core/backend'],
  'stores/redis/client': [...REDIS, 'core/options', 'ioredis', 'redis'],
  'stores/redis/ioredis': ['api', 'core/time', 'stores/node', 'stores/redis/client', 'ioredis'],
  'stores/redis/node-redis': ['api', 'core/time', 'stores/node', 'stores/redis/client', 'redis'],
  'stores/redis': ['api', 'core/options', 'stores/redis/client'],
  'stores/redis/scripts': [...REDIS, 'stores/redis/client'],
  'stores/redis/node': [...REDIS, 'stores/redis/client', 'stores/redis/scripts'],
  'stores/redis/replicas': [
    ...REDIS,
    'stores/redis/client',
    'stores/redis',
    'stores/redis/scripts',
    'stores/redis/node',
  ],
  'stores/redis/redlock': [...REDIS, 'stores/redis/client', 'stores/redis/node'],
  'stores/redis/doctor': [...REDIS, 'stores/redis/client', 'stores/redis/node'],
  'stores/sql': [...SERVER, 'core/options'],
  'stores/sql/postgres': [...SERVER, 'core/options', 'stores/sql', 'pg'],
  'stores/sql/mysql': [...SERVER, 'core/options', 'stores/sql', 'mysql2'],
  compose: ['api', ...CORE, 'core/service', 'stores'],
  fencing: ['api', 'core/keys', 'core/options', 'stores/redis/client'],
  'nest/injection': ['api', 'core/time', 'core/options', 'core/service', ...NEST, 'rxjs'],
  'nest/filters': ['api', ...NEST, 'rxjs'],
  'nest/locked': ['api', ...CORE, 'core/service', 'nest/injection', 'nest/filters', ...NEST, 'rxjs'],
  'nest/limited': ['api', 'core/options', 'nest/locked'],
  'nest/leader': ['api', ...CORE, 'core/service', 'nest/injection', ...NEST, 'rxjs'],
  'nest/module': [
    'api',
    'core/options',
    'core/service',
    'compose',
    'nest/injection',
    'nest/locked',
    'nest/leader',
    ...NEST,
  ],
  'nest/fencing': [
    'api',
    'core/time',
    'core/keys',
    'core/options',
    'fencing',
    'nest/injection',
    'nest/locked',
    ...NEST,
  ],
  page: ['api', 'core/time', 'core/options', 'core/service', 'compose', 'nest/injection', ...NEST, 'rxjs'],
  schedule: ['api', 'core/options', 'nest/injection', 'nest/locked', '@nestjs/schedule'],
  terminus: ['api', 'core/time', 'core/options', 'core/service', 'nest/injection', ...NEST, '@nestjs/terminus'],
  cli: [
    'api',
    'core/keys',
    'core/service',
    'compose',
    'stores/redis/client',
    'stores/redis/ioredis',
    'stores/redis/node-redis',
    'stores/redis/redlock',
    'stores/sql',
    'stores/sql/postgres',
    'stores/sql/mysql',
  ],
  backend: ['core/backend', 'compose', 'nest/module', ...NEST],
  sql: [
    'api',
    'core/time',
    'core/backend',
    'core/options',
    'core/locks',
    'compose',
    'stores/sql',
    'stores/sql/postgres',
    'stores/sql/mysql',
    'nest/module',
    ...NEST,
  ],
  otel: ['api', 'core/options', '@opentelemetry/api'],
  testing: [
    'api',
    ...CORE,
    'core/locks',
    'core/service',
    'stores/memory',
    'compose',
    'nest/injection',
    'nest/locked',
    'nest/leader',
    'nest/module',
    ...NEST,
  ],
};

const ORDER = Object.keys(ROOMS);
const filesOf = (room) => `^lib/${room}/[^/]+$`;
const DOOR = '^lib/[^/]+$';
const PLACES = [DOOR, ...ORDER.map(filesOf)];

/** The files that a name stands for: those of a room, of all rooms in a folder, or of a package. */
function filesNamed(name) {
  if (name in ROOMS) return filesOf(name);
  const isFolder = ORDER.some((room) => room.startsWith(`${name}/`));
  return isFolder ? `^lib/${name}/` : `^node_modules/${name}/`;
}

/** A room may import what it names, except for rooms that do not stand before it: no import goes up. */
function allowedIn([room, names]) {
  const above = ORDER.slice(ORDER.indexOf(room));
  const lower = names.filter((name) => !above.includes(name));
  return { from: { path: filesOf(room) }, to: { path: [room, ...lower].map(filesNamed) } };
}

export default {
  allowed: [
    { from: { path: DOOR }, to: { path: PLACES } },
    { from: { path: PLACES }, to: { dependencyTypes: ['core'] } },
    ...Object.entries(ROOMS).map(allowedIn),
  ],
  allowedSeverity: 'error',
  forbidden: [{ name: 'stands-in-no-room', severity: 'error', from: { orphan: true, pathNot: PLACES }, to: {} }],
  options: { tsPreCompilationDeps: true, doNotFollow: { path: 'node_modules' } },
};
