import type { GuardStatement, Taken } from '../core/backend/lock-backend.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';

/** Locks in memory, some of which a test can give to a pretended other process. */
export class BenchBackend extends MemoryBackend {
  /** The keys that the other process holds, by its owner values. */
  readonly elsewhere = new Map<string, string>();

  /** A placeholder: for locks in memory, `guard` only checks the lock, and sends nothing. */
  guard(): GuardStatement {
    return { dialect: 'testing', text: 'SELECT 1', values: [] };
  }

  override async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const taken = await super.forceRelease(key, from);
    for (const owner of taken?.from ?? []) this.elsewhere.delete(owner);
    return taken;
  }
}
