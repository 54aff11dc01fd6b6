import { Injectable } from '@nestjs/common';
import { setTimeout as pause } from 'node:timers/promises';

const LATENCY_MS = 5;

/** A request that is held up on its way until `letThrough` is called. */
export interface HeldUp {
  readonly arrived: Promise<void>;
  letThrough(): void;
}

interface Hold {
  arrive: () => void;
  end: Promise<void>;
}

/** The network to the warehouse: it has some latency, and can hold a request up for longer. */
@Injectable()
export class NetworkService {
  readonly #holds = new Map<string, Hold>();
  readonly #heldUp = new Set<() => void>();

  /** @param request the method and the path, such as `PUT /products/tea` */
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
