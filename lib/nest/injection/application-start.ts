import type { ModulesContainer } from '@nestjs/core';
import type { LockService } from '../../core/service/lock.service.js';

/**
 * The start of one application. The library refuses it if an option or a decorator is wrong, and then closes the services that are
 * already open. Nest calls no hooks of such an application, and connections would keep its process alive.
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

  /** Called when the application has started. A later refusal concerns a lazy module, and the application runs on without it. */
  succeeded(): void {
    this.#phase = 'started';
    this.#services.clear();
  }

  /** Closes all services that are open. Never rejects. */
  async refuse(): Promise<void> {
    if (this.#phase === 'started') return;
    this.#phase = 'refused';
    const services = [...this.#services];
    await Promise.allSettled(services.map(async (service) => (await service).onApplicationShutdown()));
  }
}
