import type { GuardStatement, Taken } from '../core/backend/lock-backend.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';

/** Locks in memory as if there were another process, which holds locks as a test wants it. */
export class BenchBackend extends MemoryBackend {
  /** What the other process holds: the keys, by its owner values. */
  readonly elsewhere = new Map<string, string>();

  /** Of locks in memory: `guard` checks them, and sends nothing. */
  guard(): GuardStatement {
    return { dialect: 'testing', text: 'SELECT 1', values: [] };
  }

  override async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const taken = await super.forceRelease(key, from);
    for (const owner of taken?.from ?? []) this.elsewhere.delete(owner);
    return taken;
  }
}
