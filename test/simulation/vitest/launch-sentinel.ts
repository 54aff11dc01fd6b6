import type { LaunchedSentinel, SentinelSettings } from '../../support/launch-sentinel.js';
import { simulation } from './simulation.js';

/** Replaces the function of test/support/launch-sentinel.ts. */
export async function launchSentinel(
  group: string,
  primary: { readonly port: number },
  { downAfterMs }: SentinelSettings,
): Promise<LaunchedSentinel> {
  const { port, stop } = simulation().sentinels(group, primary.port, downAfterMs).add();
  return { port, stop: async () => stop() };
}
