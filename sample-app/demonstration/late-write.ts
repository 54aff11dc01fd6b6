import { filter, firstValueFrom, timeout } from 'rxjs';
import type { HeldUp } from './warehouse/network.service.js';
import type { Site } from './site.js';

/** Lets a delayed write arrive, and returns whether the warehouse refused it. */
export async function isRefused({ warehouse }: Site, sku: string, write: HeldUp): Promise<boolean> {
  const arrival = firstValueFrom(
    warehouse.writes.writes$.pipe(
      filter(({ resource }) => resource === sku),
      timeout(5_000),
    ),
  );
  write.letThrough();
  return !(await arrival).accepted;
}
