/**
 * Checks the floors of lib/: a room imports only from the rooms that it names here, which stand before it in this list. So no
 * import goes up and no two rooms import each other. Prints what breaks that, and exits with 1.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const lib = fileURLToPath(new URL('../lib', import.meta.url));

const CORE = ['core/time', 'core/keys', 'core/backend', 'core/options'];
const NEST = ['@nestjs/common', '@nestjs/core'];
const REDIS = ['api', 'core/time', 'core/backend'];

/** Each room of lib/, low to high, with the rooms and packages that it may import. What is no room names all those below it. */
const ROOMS = {
  api: ['rxjs'],
  'core/time': [],
  'core/keys': ['api'],
  'core/backend': ['api', 'core/time'],
  'core/options': ['api', 'core/backend'],
  'core/lease': ['api', ...CORE, 'rxjs'],
  'core/waiting': ['api', ...CORE, 'core/lease', 'rxjs'],
  'core/engine': ['api', ...CORE, 'core/lease', 'core/waiting', 'rxjs'],
  'core/service': ['api', ...CORE, 'core/lease', 'core/waiting', 'core/engine', 'rxjs'],
  'stores/memory': ['api', 'core/time', 'core/backend'],
  'stores/redis/client': [...REDIS, 'ioredis'],
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
  'stores/redis/single': [...REDIS, 'stores/redis/client', 'stores/redis/node', 'stores/redis/replicas'],
  'stores/redis/redlock': [...REDIS, 'stores/redis/client', 'stores/redis/node'],
  'stores/redis/doctor': [...REDIS, 'stores/redis/client', 'stores/redis/node'],
  compose: ['api', ...CORE, 'core/service', 'stores'],
  fencing: ['api', 'core/keys', 'core/options', 'stores/redis/client'],
  'nest/injection': ['api', 'core/time', 'core/options', 'core/service', ...NEST],
  'nest/filters': ['api', ...NEST, 'rxjs'],
  'nest/locked': ['api', ...CORE, 'core/service', 'nest/injection', 'nest/filters', ...NEST, 'rxjs'],
  'nest/leader': ['api', ...CORE, 'core/service', 'nest/injection', ...NEST],
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
  cli: ['api', 'core/keys', 'core/service', 'compose', 'stores/redis/client', 'stores/redis/redlock'],
  otel: ['api', 'core/options', '@opentelemetry/api'],
  testing: [
    'api',
    ...CORE,
    'core/lease',
    'core/waiting',
    'core/engine',
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

const names = Object.keys(ROOMS);
const problems = [];

for (const file of readdirSync(lib, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))) {
  const room = dirname(file);
  if (room === '.') continue; // the door of the package
  if (!names.includes(room)) problems.push(`${file} stands in no room: name lib/${room} in .ci/floors.mjs.`);
  const { importedFiles } = ts.preProcessFile(readFileSync(join(lib, file), 'utf8'));
  for (const { fileName } of importedFiles) {
    const from = targetOf(file, fileName);
    if (from === room || from.startsWith('node:')) continue;
    if (!ROOMS[room]?.some((allowed) => from === allowed || (!(allowed in ROOMS) && from.startsWith(`${allowed}/`)))) {
      problems.push(`${file} imports ${fileName}: ${room} may not import ${from}.`);
    }
  }
}
for (const [room, allowed] of Object.entries(ROOMS)) {
  const above = allowed.filter((other) => names.indexOf(other) >= names.indexOf(room));
  if (above.length > 0) problems.push(`${room} names ${above.join(', ')}, which does not stand before it.`);
}

for (const problem of problems) console.error(problem);
process.exitCode = problems.length > 0 ? 1 : 0;

/** The room of a file, the door, or the name of a package. */
function targetOf(file, specifier) {
  if (specifier.startsWith('node:')) return specifier;
  if (!specifier.startsWith('.')) return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
  const room = relative(lib, dirname(join(lib, dirname(file), specifier)));
  return room === '' ? 'the door' : room;
}
