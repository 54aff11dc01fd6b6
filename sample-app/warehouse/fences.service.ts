import { ConflictException, Injectable } from '@nestjs/common';
import { Subject } from 'rxjs';

export interface Write {
  resource: string;
  fencingToken?: number;
  accepted: boolean;
}

/**
 * Lets nobody write whose lock was succeeded by a later one: the fencing tokens of a key only grow, so a smaller one than
 * the resource has seen is that of a former holder.
 */
@Injectable()
export class FencesService {
  readonly writes$ = new Subject<Write>();
  readonly #highest = new Map<string, number>();

  /** @throws ConflictException for a token that is too old, or for none where there was one before */
  check(resource: string, fencingToken?: number): void {
    const highest = this.#highest.get(resource) ?? 0;
    const accepted = (fencingToken ?? 0) >= highest;
    this.writes$.next({ resource, fencingToken, accepted });
    if (!accepted) {
      throw new ConflictException(
        `${resource} has seen fencing token ${highest} and refuses ${fencingToken ?? 'a write without one'}.`,
      );
    }
    if (fencingToken !== undefined) this.#highest.set(resource, fencingToken);
  }
}
