import { until } from './until.js';
import type { LockCounts } from '../shop/locks/lock-counts.service.js';
import type { Site } from './site.js';

export interface NightFigures {
  nights: number;
  /** How often the cron job was due: once per night and instance. */
  ticks: number;
  ran: number;
  skipped: number;
}

const NIGHTS = 3;
const TICKS_PER_NIGHT = 3;

/** Lets night fall on all instances at once. A single instance gets all ticks. */
export async function nights({ instances, warehouse }: Site): Promise<NightFigures> {
  const counted = async (): Promise<Required<Pick<LockCounts, 'acquired' | 'contended'>>> => {
    const counts = await Promise.all(instances.map((instance) => instance.get<Record<string, LockCounts>>('/locks')));
    const sum = (type: 'acquired' | 'contended') => counts.reduce((all, one) => all + (one.nightly?.[type] ?? 0), 0);
    return { acquired: sum('acquired'), contended: sum('contended') };
  };
  // Counts refused reports as well: the job ran.
  let ran = 0;
  const counting = warehouse.writes.writes$.subscribe(({ resource }) => (ran += resource === 'reports' ? 1 : 0));
  for (let night = 1; night <= NIGHTS; night++) {
    // The job lasts until every instance has had its tick: a real job, too, must last longer than the clocks differ.
    const report = warehouse.network.holdUpNext('POST /reports');
    const ticks = Array.from({ length: TICKS_PER_NIGHT }, (_, tick) => instances[tick % instances.length]!);
    await Promise.all(ticks.map((instance) => instance.post('/nights')));
    await until(
      async () => {
        const { acquired, contended } = await counted();
        return acquired + contended === night * TICKS_PER_NIGHT;
      },
      { what: `the cron job of each instance has run or skipped night ${night}` },
    );
    report.letThrough();
    await until(async () => (await warehouse.reports.all()).length >= night, {
      what: `the report of night ${night} is filed`,
    });
    // The lock is released a moment later: if night fell earlier, all instances would find it taken.
    await until(async () => (await instances[0]!.get<{ holding: unknown }>('/locks/nightly')).holding === null, {
      what: `the cron job of night ${night} has ended`,
    });
  }
  const { acquired, contended } = await counted();
  counting.unsubscribe();
  return { nights: NIGHTS, ticks: acquired + contended, ran, skipped: contended };
}
