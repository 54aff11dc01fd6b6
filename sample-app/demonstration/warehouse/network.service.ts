import { Injectable } from '@nestjs/common';
import { setTimeout as pause } from 'node:timers/promises';

const LATENCY_MS = 5;

/** A request on its way that gets no further until it is let through. */
export interface HeldUp {
  readonly arrived: Promise<void>;
  letThrough(): void;
}

interface Hold {
  arrive: () => void;
  end: Promise<void>;
}

/** The way to the warehouse: it takes its time, and can hold a request up for longer. */
@Injectable()
export class NetworkService {
  readonly #holds = new Map<string, Hold>();
  readonly #heldUp = new Set<() => void>();

  /** @param request method and path, as in `PUT /products/tea` */
  async carry(request: string): Promise<void> {
    await pause(LATENCY_MS);
    const hold = this.#holds.get(request);
    if (!hold) return;
    this.#holds.delete(request);
    hold.arrive();
    await hold.end;
  }

  /** Holds up the next such request, and only that one. */
  holdUpNext(request: string): HeldUp {
    let arrive!: () => void;
    let letThrough!: () => void;
    const arrived = new Promise<void>((resolve) => (arrive = resolve));
    const end = new Promise<void>((resolve) => (letThrough = resolve));
    this.#holds.set(request, { arrive, end });
    this.#heldUp.add(letThrough);
    return { arrived, letThrough };
  }

  letAllThrough(): void {
    for (const letThrough of this.#heldUp) letThrough();
  }
}
