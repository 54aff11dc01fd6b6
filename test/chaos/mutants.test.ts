import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from '../../lib/options.js';
import { resolveOptions } from '../../lib/resolve-options.js';
import type { LockService } from '../../lib/service/lock.service.js';
import { RedlockNodes } from '../backends/redlock-nodes.js';
import { compileLibrary } from '../support/compiled-library.js';
import { untilQueued } from '../support/queue.js';
import { applyMutant, brokenFiles, MUTANTS } from './mutants.js';

let redis: RedlockNodes;

beforeAll(async () => {
  redis = await RedlockNodes.start(3);
});

afterAll(() => redis.stop());

describe('the mutants of the chaos run', () => {
  it.each(Object.entries(MUTANTS))('mutant %s applies to the library [G145]', (name, { edits, options = {} }) => {
    const library = compileLibrary();
    const broken = brokenFiles(name, library);
    expect([...broken.keys()].sort()).toEqual([...new Set(edits.map(({ file }) => file))].sort());
    for (const [file, source] of broken) expect(source).not.toBe(readFileSync(join(library, file), 'utf8'));
    expect(broken.size + Object.keys(options).length).toBeGreaterThan(0);
    const redlock = ['redis://a', 'redis://b', 'redis://c'];
    expect(resolveOptions({ redlock, ...options })).toMatchObject(options);
  });

  // Or else it would be caught, or missed, for want of any lock.
  it.each(Object.entries(MUTANTS))('%s takes, extends, hands over and releases a lock', async (name, mutant) => {
    const library = compileLibrary();
    const copy = mkdtempSync(join(dirname(library), 'mutant-'));
    onTestFinished(() => rmSync(copy, { recursive: true }));
    applyMutant(name, library, copy);
    const nodes = mutant.nodes === 1 ? { redis: redis.urls[0]! } : { redlock: redis.urls };
    const [locks, others] = [await open(copy, { ...nodes, ...mutant.options }), await open(copy, nodes)];

    const lock = await locks.acquire(name);
    await lock.extend();
    expect(lock.isHeld).toBe(true);
    const waiting = others.acquire(name);
    await untilQueued(redis.servers[0]!, name, 1);
    expect(await lock.release()).toBe(true);
    expect(await (await waiting).release()).toBe(true);
  });

  it('cannot be applied where their text is not found', () => {
    const other = mkdtempSync(join(tmpdir(), 'mutants-'));
    onTestFinished(() => rmSync(other, { recursive: true }));
    mkdirSync(join(other, 'scripts'));
    writeFileSync(join(other, 'scripts/release.script.js'), 'if holder then');
    expect(() => brokenFiles('release-without-owner-check', other)).toThrow(
      'The mutant release-without-owner-check does not apply: "if holder == owner then" is not in scripts/release.script.js',
    );
  });
});

/** A lock service of the library in that folder. */
async function open(library: string, options: RedisLockModuleOptions): Promise<LockService> {
  const file = pathToFileURL(join(library, 'service/lock.service.js')).href;
  const module = (await import(file)) as { LockService: typeof LockService };
  const [locks] = await module.LockService.open(resolveOptions({ shutdownTimeoutMs: 0, ...options }));
  onTestFinished(() => locks.onApplicationShutdown());
  return locks;
}
