import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, join } from 'node:path';
import { compileFunction } from 'node:vm';
import ts from 'typescript';
import type { Library } from '../../chaos/mutant.js';
import { ambientOf, type Surroundings } from '../ambient.js';

/** The environment of a process of the simulation. */
export interface Home extends Surroundings {
  readonly pid: number;
  readonly hostname: string;
}

export interface LibraryPlace {
  /** The folder of the project. */
  readonly root: string;
  /** The folder of its compiled modules, as CommonJS. */
  readonly library: string;
}

/** What each module gets instead of what Node.js has. */
const NAMES = [
  'exports',
  'require',
  'module',
  '__filename',
  '__dirname',
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
  'performance',
  'Date',
  'Math',
  'process',
] as const;

/** Packages that have neither clocks, timers, chance nor state: all copies share them. `.cache` has the library, compiled. */
const SHARED =
  /\/node_modules\/(?!(\.cache|ioredis|@ioredis|denque|standard-as-callback|redis-errors|cluster-key-slot|redis|@redis)\/)/;

/** Builtins that depend only on their arguments. */
const PURE = ['assert', 'buffer', 'diagnostics_channel', 'events', 'stream', 'url', 'util'];

/** Builtins that are loaded, but never used: using them would leave the simulation. */
const UNUSED = ['dns', 'dns/promises', 'tls'];

type Module = (this: unknown, ...parts: unknown[]) => void;

interface Frame {
  readonly of: SharedStorage;
  readonly store: unknown;
  readonly outer?: Frame;
}

/** The stores of all copies: until Node.js 24, each promise gets the store of every storage. */
const frames = new AsyncLocalStorage<Frame | undefined>();

/** `AsyncLocalStorage` of a copy: the part of it that the library uses. */
class SharedStorage {
  static readonly snapshot = () => AsyncLocalStorage.snapshot();

  run<R, Args extends unknown[]>(store: unknown, work: (...args: Args) => R, ...args: Args): R {
    return frames.run({ of: this, store, outer: this.#others }, work, ...args);
  }

  getStore(): unknown {
    let frame = frames.getStore();
    while (frame && frame.of !== this) frame = frame.outer;
    return frame?.store;
  }

  get #others(): Frame | undefined {
    const frame = frames.getStore();
    return frame?.of === this ? frame.outer : frame;
  }
}

/** Outside of the code that runs when a copy is created. */
const outsideOfAll = AsyncLocalStorage.snapshot();

/**
 * Copies of the library, and of ioredis and node-redis: their modules see the timers, clocks, chance and network of the
 * running process. Loading a copy takes some 20 ms, and its code becomes fast only much later, so all processes share
 * one copy, as long as they are `shared`. A test shows that no process sees what another one has left in its modules:
 * in one of its runs each process has its own copy.
 */
export class Copies {
  readonly #modules = new Map<string, Module>();
  readonly #resolved = new Map<string, string>();
  /** By kind. */
  readonly #shared = new Map<string, Copy>();

  constructor(
    private readonly place: LibraryPlace,
    private readonly uses: 'shared' | 'own' = 'shared',
  ) {}

  /** @param mutant of the library: the same for each process of this pid */
  take(home: Home, mutant?: string): Copy {
    if (this.uses === 'own') return new Copy(this, home, mutant);
    const kind = mutant === undefined ? '' : `${mutant} ${home.pid}`;
    let copy = this.#shared.get(kind);
    if (!copy) this.#shared.set(kind, (copy = new Copy(this, home, mutant)));
    return copy;
  }

  /** The file of this module name. */
  resolve(from: string, id: string): string {
    const name = `${from}\0${id}`;
    let file = this.#resolved.get(name);
    if (file === undefined) this.#resolved.set(name, (file = this.#find(from, id)));
    return file;
  }

  /** A module of the tests. */
  test(path: string): string {
    return join(this.place.root, 'test', path);
  }

  /** The function of a module. It is compiled once. */
  moduleOf(file: string): Module {
    let module = this.#modules.get(file);
    if (!module) {
      const source = readFileSync(file, 'utf8');
      const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS };
      const text = file.endsWith('.ts') ? ts.transpileModule(source, { compilerOptions }).outputText : source;
      module = compileFunction(text, [...NAMES], { filename: file }) as Module;
      this.#modules.set(file, module);
    }
    return module;
  }

  #find(from: string, id: string): string {
    if (!id.startsWith('.')) return realpathSync(createRequire(from).resolve(id));
    const file = join(dirname(from), id);
    const source = join(this.place.root, 'lib/');
    if (file.startsWith(source)) return join(this.place.library, file.slice(source.length));
    const typed = file.replace(/\.js$/, '.ts');
    return typed !== file && existsSync(typed) ? typed : createRequire(from).resolve(id);
  }
}

/** One copy. */
export class Copy {
  readonly library: Library;
  #home: Home;
  readonly #loaded = new Map<string, { exports: unknown }>();
  readonly #builtins: Readonly<Record<string, unknown>>;
  readonly #shadows: readonly unknown[];

  constructor(
    private readonly copies: Copies,
    home: Home,
    mutant?: string,
  ) {
    this.#home = home;
    const here = () => this.#home;
    const { timers, timersPromises, Date, now, random, randomBytes, randomUUID, net } = ambientOf(here);
    const performance = {
      now,
      get timeOrigin() {
        return here().process.originMs;
      },
    };
    const node = createRequire(import.meta.url);
    const { createHash } = node('node:crypto') as typeof import('node:crypto');
    this.#builtins = {
      ...Object.fromEntries(PURE.map((name) => [name, node(name)])),
      ...Object.fromEntries(UNUSED.map((name) => [name, {}])),
      async_hooks: { ...(node('node:async_hooks') as object), AsyncLocalStorage: SharedStorage },
      timers,
      'timers/promises': timersPromises,
      perf_hooks: { performance },
      crypto: { createHash, randomBytes, randomUUID },
      os: { hostname: () => here().hostname },
      net: { ...(node('node:net') as object), ...net },
    };
    const simulatedMath = Object.defineProperties({}, Object.getOwnPropertyDescriptors(Math)) as Math;
    simulatedMath.random = random;
    this.#shadows = [
      timers.setTimeout,
      timers.clearTimeout,
      timers.setInterval,
      timers.clearInterval,
      timers.setImmediate,
      timers.clearImmediate,
      performance,
      Date,
      simulatedMath,
      processOf(here),
    ];
    this.library = outsideOfAll(() => this.#load(copies.test('chaos/library.ts'))) as Library;
    if (mutant !== undefined) this.#mutate(mutant);
  }

  /** The running code is part of this process. */
  enter(home: Home): void {
    this.#home = home;
  }

  #mutate(name: string): void {
    const { MUTANTS } = this.#load(this.copies.test('chaos/mutants.ts')) as typeof import('../../chaos/mutants.js');
    MUTANTS[name]!.inject?.(this.library);
  }

  #load(file: string): unknown {
    const loaded = this.#loaded.get(file);
    if (loaded) return loaded.exports;
    if (SHARED.test(file) || file.endsWith('.json')) return createRequire(file)(file);
    const module = { exports: {} as unknown };
    this.#loaded.set(file, module);
    const require = (id: string): unknown => {
      if (!isBuiltin(id)) return this.#load(this.copies.resolve(file, id));
      const builtin = this.#builtins[id.replace(/^node:/, '')];
      if (builtin === undefined) throw new Error(`${file} needs ${id}, which the simulation does not have.`);
      return builtin;
    };
    this.copies
      .moduleOf(file)
      .call(module.exports, module.exports, require, module, file, dirname(file), ...this.#shadows);
    return module.exports;
  }
}

/** The global `process` of a copy. */
function processOf(here: () => Home): object {
  return Object.create(process, {
    pid: { get: () => here().pid },
    nextTick: { value: process.nextTick.bind(process) },
  }) as object;
}
