import { performance } from 'node:perf_hooks';
import type { Logger } from '@nestjs/common';
import { adviceFor } from '../../api/errors.js';
import type { LockEvent } from '../../api/events.js';
import type { LockService } from '../../core/service/lock.service.js';

/** Milliseconds between two attempts to acquire a lock during an outage. */
const RETRY_MS = 1_000;

/**
 * Logs one line when locks become unavailable, and one when they are available again. Only a lock that the store grants ends an
 * outage. Connections to a server that hangs or refuses writes look healthy, and locks that are passed on within this process do
 * not need the store.
 */
export class Outage {
  #since?: number;
  #refused = 0;
  #timer?: NodeJS.Timeout;
  #isOver = false;

  constructor(
    private readonly service: LockService,
    private readonly logger: Logger,
  ) {}

  note(event: Extract<LockEvent, { causes: unknown }>): void {
    // The application is closing, or only this key cannot be locked.
    if (event.causes.every(({ isOfKey }) => isOfKey)) return;
    if (event.type === 'unavailable') this.#refused++;
    if (this.#since !== undefined) return;
    this.#since = performance.now();
    const causes = event.causes.map(({ message }) => message).join('; ');
    this.logger.warn(`Locks are unavailable: ${causes}. ${adviceFor(event.causes)}`);
    this.#retry(event.key);
  }

  end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #retry(key: string): void {
    this.#timer = setTimeout(() => void this.#try(key), RETRY_MS).unref();
  }

  async #try(key: string): Promise<void> {
    const isAvailable = await this.service.isAvailable(key);
    if (this.#isOver) return;
    if (!isAvailable) {
      this.#retry(key);
      return;
    }
    const seconds = ((performance.now() - this.#since!) / 1_000).toFixed(1);
    const calls = `${this.#refused} call${this.#refused === 1 ? ' was' : 's were'}`;
    this.logger.warn(`Locks are available again after ${seconds} s, during which ${calls} refused.`);
    this.#since = undefined;
    this.#refused = 0;
  }
}
