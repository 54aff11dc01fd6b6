import { Inject, Injectable } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { HealthIndicatorService, type HealthIndicatorResult } from '@nestjs/terminus';
import type { LockPing } from '../api/diagnosis.js';
import { milliseconds } from '../core/options/checks.js';
import type { LockService } from '../core/service/lock.service.js';
import { inTime } from '../core/time/time-limit.js';
import { getLockServiceToken } from '../nest/injection/tokens.js';

/** Options of `LockHealthIndicator.pingCheck`. */
export interface LockPingCheckOptions {
  /** Name of the registration. @default the registration without a name */
  registration?: string;
  /** Time limit of the check, in milliseconds, 1 to 60 000. @default 1000 */
  timeoutMs?: number;
  /**
   * Whether the result contains the problems of each server. They name addresses, so do not show the result publicly.
   * @default false
   */
  details?: boolean;
}

const CHECK_TIMEOUT = milliseconds(1, 60_000);

/** Checks for `@nestjs/terminus` 11 and 12 whether locks can be acquired. For readiness, never for liveness. */
@Injectable()
export class LockHealthIndicator {
  /** @internal Nest makes it. */
  constructor(
    // Explicit, since some build tools emit no parameter types.
    @Inject(HealthIndicatorService) private readonly health: HealthIndicatorService,
    @Inject(ModuleRef) private readonly ref: ModuleRef,
  ) {}

  /**
   * Returns `down` if no lock can be acquired, or if the application has begun to close. Returns `degraded` if some nodes of a Redlock
   * do not vote but are not needed, or `up` with `warnings` in Terminus 11. Never rejects: a mistake in the options also gives `down`.
   * @param key the name of the check in the result
   */
  async pingCheck<const Key extends string>(
    key: Key,
    { registration, timeoutMs = 1_000, details = false }: LockPingCheckOptions = {},
  ): Promise<HealthIndicatorResult<Key>> {
    const session = this.health.check(key);
    try {
      CHECK_TIMEOUT('timeoutMs', timeoutMs);
      const locks = this.ref.get<LockService>(getLockServiceToken(registration), { strict: false });
      const ping = await inTime<LockPing>(locks.ping(), timeoutMs, () => {
        throw new Error(`no answer within ${timeoutMs} ms`);
      });
      const { available, closing, nodes, problems } = ping;
      const data = { nodes, ...(details && { problems: problems.map(({ message }) => message) }) };
      if (closing) return session.down({ message: 'the application is closing', ...data });
      if (!available) return session.down({ message: 'no lock can be taken', ...data });
      if (nodes.voting === nodes.of) return session.up(data);
      const impaired = { ...data, warnings: [`${nodes.of - nodes.voting} of ${nodes.of} nodes cannot vote`] };
      // Terminus 11 drops a result with any status but up and down.
      return typeof session.degraded === 'function' ? session.degraded(impaired) : session.up(impaired);
    } catch (error) {
      return session.down({ message: error instanceof Error ? error.message : String(error) });
    }
  }
}
