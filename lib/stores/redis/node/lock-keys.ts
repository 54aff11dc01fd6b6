import { PROTOCOL } from '../scripts/hand-off.js';

/** The names of all keys and channels in Redis, see docs/protocol.md. The braces put the keys of a lock into one slot of a Cluster. */
export class LockKeys {
  constructor(private readonly prefix: string) {}

  /** The lock itself: its value is the owner. */
  lock(key: string): string {
    return `${this.prefix}:{${key}}`;
  }

  /** The lock and its fencing counter. */
  lockAndFence(key: string): string[] {
    const lock = this.lock(key);
    return [lock, `${lock}:fence`];
  }

  /** The lock, its fencing counter and its queue. */
  all(key: string): string[] {
    const lock = this.lock(key);
    return [lock, `${lock}:fence`, `${lock}:queue`];
  }

  /** What a node of a Redlock remembers of its own restarts. */
  get admission(): string {
    return `${this.prefix}:admission`;
  }

  /** The channel of a process, or what the channels of all processes begin with. It is one word of a queue's entry. */
  inbox(processName = ''): string {
    return `${this.prefix}:inbox:${PROTOCOL}:${processName}`.replace(/\s/g, '_');
  }
}
