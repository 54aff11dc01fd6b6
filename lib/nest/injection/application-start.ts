import type { ModulesContainer } from '@nestjs/core';
import type { LockService } from '../../core/service/lock.service.js';

/**
 * The start of one application. If the library refuses it, as an option or a decorator is wrong, what was opened by then is
 * closed: Nest calls no hook of such an application, and connections would keep its process alive.
 */
export class ApplicationStart {
  #phase: 'starting' | 'started' | 'refused' = 'starting';
  readonly #services = new Set<Promise<LockService>>();
  private static readonly all = new WeakMap<ModulesContainer, ApplicationStart>();

  static of(modules: ModulesContainer): ApplicationStart {
    const { all } = ApplicationStart;
    const known = all.get(modules) ?? new ApplicationStart();
    all.set(modules, known);
    return known;
  }

  opens(service: Promise<LockService>): void {
    this.#services.add(service);
    if (this.#phase === 'refused') void this.refuse();
  }

  /** From now on what is refused is a lazy module: the application goes on without it. */
  succeeded(): void {
    this.#phase = 'started';
    this.#services.clear();
  }

  /** Closes all that was opened. Never rejects. */
  async refuse(): Promise<void> {
    if (this.#phase === 'started') return;
    this.#phase = 'refused';
    const services = [...this.#services];
    await Promise.allSettled(services.map(async (service) => (await service).onApplicationShutdown()));
  }
}
