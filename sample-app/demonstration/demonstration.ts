import type { Backing } from './backing.js';
import { crash, type CrashFigures } from './crash.js';
import { pause } from './pause.js';
import { nights, type NightFigures } from './nights.js';
import { rush, type RushFigures } from './rush.js';
import type { Site } from './site.js';

export interface Figures {
  locks: Backing['kind'];
  instances: number;
  unlocked: RushFigures;
  locked: RushFigures;
  nights: NightFigures;
  crash: CrashFigures;
}

/** Performs the whole run, one act after the other. */
export async function demonstrate(site: Site): Promise<Figures> {
  const { kind: locks, instances } = site.backing;
  return {
    locks,
    instances,
    unlocked: await rush(site, 'biscuits', 'unlocked-purchases'),
    locked: await rush(site, 'tea', 'purchases'),
    nights: await nights(site),
    crash: { ...(await crash(site, 'coffee')), ...(locks !== 'memory' && { pause: await pause(site, 'cocoa') }) },
  };
}
