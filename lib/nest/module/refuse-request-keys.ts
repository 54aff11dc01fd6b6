import type { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { notesOf, type Host, type NestModule } from '../injection/decorated-methods.js';

/**
 * Refuses keys that no request can fill: keys of methods that are not handlers, and keys with a parameter that the route of the
 * handler does not have.
 * @throws LockOptionsError
 */
export function refuseRequestKeys(hosts: readonly Host[], application: Application): void {
  for (const { module, prototype, methods } of hosts) {
    for (const [{ name, method }] of methods) {
      const problem = method && problemOf(prototype.constructor, method, module, application);
      if (problem) throw new LockOptionsError(`${name} in ${module.name} is ${problem}`);
    }
  }
}

interface Application {
  readonly modules: ModulesContainer;
  readonly config: ApplicationConfig;
}

/** Describes the first key of a method that no request can fill. */
function problemOf(type: object, method: object, module: NestModule, application: Application): string | undefined {
  const keys = notesOf(method).flatMap(({ decorator, locksCalls, requestKeys = [] }) =>
    requestKeys.filter(({ sources }) => sources.length > 0).map((key) => ({ decorator, locksCalls, ...key })),
  );
  for (const { decorator, locksCalls, template, sources } of keys) {
    const what = `${decorator} with the key ${quoted(template)}`;
    if (!isHandler(type, method)) {
      const advice = locksCalls
        ? 'Make the key from the arguments, as with {0}, or move the decorator to the handler.'
        : 'Move the decorator to the handler.';
      return `${what}, which is made from the request, but the method is not a handler: it has no request. ${advice}`;
    }
    const missing = missingParameter(routesOf(type, method, module, application), sources);
    if (missing !== undefined) return `${what}, but ${missing} Correct the key.`;
  }
  return undefined;
}

const PATH = 'path'; // PATH_METADATA of Nest
const CONTROLLER = '__controller__'; // CONTROLLER_WATERMARK of Nest
const MODULE_PATH = '__module_path__'; // MODULE_PATH of Nest
const VERSION = '__version__'; // VERSION_METADATA of Nest
/** The metadata of Nest's decorators of gateways, message handlers and resolvers on classes and methods. */
const HANDLER = /^(websockets|microservices|graphql):/;

/** Whether Nest calls the method with a request. All methods of controllers, gateways and resolvers count. */
function isHandler(type: object, method: object): boolean {
  const keys = [type, method].flatMap((each) => Reflect.getMetadataKeys(each) as unknown[]);
  return keys.some((key) => key === CONTROLLER || key === PATH || (typeof key === 'string' && HANDLER.test(key)));
}

/** Returns the paths and versions of a handler's routes; undefined for a handler without routes. */
function routesOf(
  type: object,
  method: object,
  module: NestModule,
  { modules, config }: Application,
): { paths: string[]; versions: string[] } | undefined {
  const ofMethod = textsOf(Reflect.getMetadata(PATH, method));
  if (ofMethod.length === 0) return undefined;
  const modulePath: unknown =
    Reflect.getMetadata(MODULE_PATH + modules.applicationId, module.metatype) ??
    Reflect.getMetadata(MODULE_PATH, module.metatype);
  const ofModule = `${config.getGlobalPrefix()}/${textsOf(modulePath).join('/')}`;
  const paths = textsOf(Reflect.getMetadata(PATH, type)).flatMap((ofController) =>
    ofMethod.map((path) => `/${ofModule}/${ofController}/${path}`.replace(/\/+/g, '/').replace(/(.)\/$/, '$1')),
  );
  return { paths, versions: [type, method].flatMap((each) => textsOf(Reflect.getMetadata(VERSION, each))) };
}

function textsOf(metadata: unknown): string[] {
  return [metadata].flat().filter((each) => typeof each === 'string');
}

/**
 * Describes the first parameter of the key that no route has. Skips paths that routers read differently: with wildcards, patterns,
 * optional parts in an older style, quoted names, or escapes.
 */
function missingParameter(routes: ReturnType<typeof routesOf>, sources: readonly string[]): string | undefined {
  if (!routes) return undefined;
  const { paths, versions } = routes;
  const all = [...paths, ...versions].join(' ');
  if (/[*+?()[\]|"\\]|::/.test(all)) return undefined;
  const parameters = Array.from(all.matchAll(/:([\p{ID_Start}$_][\p{ID_Continue}$]*)/gu), ([, name]) => name!);
  const wanted = sources.flatMap((source) => /^params\.([^.]+)/.exec(source)?.[1] ?? []);
  const missing = wanted.find((name) => !parameters.includes(name));
  if (missing === undefined) return undefined;
  const [routeHas, it] =
    paths.length === 1 ? [`its route ${paths[0]} has`, 'It has'] : [`its routes ${paths.join(', ')} have`, 'They have'];
  const names = [...new Set(parameters)].map((name) => quoted(name)).join(', ');
  return `${routeHas} no parameter ${quoted(missing)}. ${it} ${names || 'none'}.`;
}
