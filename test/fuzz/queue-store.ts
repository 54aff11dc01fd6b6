import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendRequest,
  Grant,
  LockBackend,
  Place,
  ReleaseOutcome,
  Releasing,
  WaitListener,
  WaitQueue,
} from '../../lib/core/backend/lock-backend.js';
import { NodeError } from '../../lib/api/errors.js';

/** How a store lets calls wait: it hands locks over, only wakes the first in the queue, or has no queue. */
export type Waiting = 'hands over' | 'wakes' | 'has no queue';

interface Unavailable {
  status: 'unavailable';
  causes: NodeError[];
}

/** For how long a lock stands that was handed over. */
const HANDED_OVER_MS = 2_000;

/**
 * An honest store of the locks of one process, in which everything takes as long as the schedule says: commands run, are
 * answered or fail, and messages come or are lost, when `next` is called.
 */
export class QueueStore {
  /** When the lease of each owner ends. */
  readonly #holders = new Map<string, number>();
  /** In the order in which their places count as taken. */
  #queue: Place[] = [];
  #steps: (() => void)[] = [];
  #listener?: WaitListener;
  #lastToken = 0;
  isListening = false;
  /** How many attempts are in flight. */
  asking = 0;

  /** The part of what is sent that fails from now on. */
  failing = 0;
  readonly backend: LockBackend;

  constructor(
    private readonly waiting: Waiting,
    private readonly random: () => number,
    private readonly now: () => number,
  ) {
    this.backend = this.#backend();
  }

  /** What is still to run, to be answered, or to be delivered. */
  get due(): number {
    return this.#steps.length;
  }

  get holders(): number {
    this.#expire();
    return this.#holders.size;
  }

  /** How many places stand in its queue. */
  get places(): number {
    return this.#queue.length;
  }

  /** Loses all places in its queue. */
  loseQueue(): void {
    this.#queue = [];
  }

  /** One command runs, is answered, or one message is delivered. */
  next(): void {
    const [step] = this.#steps.splice(Math.floor(this.random() * this.#steps.length), 1);
    step?.();
  }

  #backend(): LockBackend {
    const waitQueue = {
      handsOver: this.waiting === 'hands over',
      isListening: () => this.isListening,
      listen: (_key: string, listener: WaitListener) => {
        this.#listener = listener;
        this.#later(() => {
          this.isListening = true;
          listener.onTurn();
        });
      },
      checkListening: () => {},
      leave: (_key: string, { ticket }: Place) => this.#leave(ticket),
      turn: (...[{ owner }, released, request, done]: Parameters<Required<WaitQueue>['turn']>) => {
        const sentAt = this.now();
        this.asking++;
        let wasHeld = false;
        const giveAndAsk = () => {
          this.#expire();
          wasHeld = this.#holders.delete(owner);
          return this.#acquire(request, sentAt);
        };
        const undo = () => {
          this.#leave(owner);
          this.#leave(request.owner);
          if (request.place) this.#leave(request.place.ticket);
        };
        this.#run(
          giveAndAsk,
          (outcome) => {
            this.asking--;
            if (outcome.status === 'unavailable') released(outcome);
            else released({ status: wasHeld ? 'released' : 'gone' });
            done(outcome);
          },
          undo,
        );
      },
    };
    return {
      waitQueue: this.#waitQueueOf(waitQueue),
      attemptTimeoutMs: () => 1_000,
      acquire: (request: AcquireRequest, done: (outcome: AcquireOutcome) => void) => {
        const sentAt = this.now();
        this.asking++;
        this.#run(
          () => this.#acquire(request, sentAt),
          (outcome) => {
            this.asking--;
            done(outcome);
          },
          () => {
            this.#leave(request.owner);
            if (request.place) this.#leave(request.place.ticket);
          },
        );
      },
      extend: ({ grant, ttlMs }: ExtendRequest, done: Parameters<LockBackend['extend']>[1]) => {
        const sentAt = this.now();
        this.#run(() => {
          this.#expire();
          if (!this.#holders.has(grant.owner)) return { status: 'lost', reason: 'expired' } as const;
          this.#holders.set(grant.owner, this.now() + ttlMs);
          return { status: 'extended', sentAt } as const;
        }, done);
      },
      release: ({ owner }: Grant, _how: Releasing, done: (outcome: ReleaseOutcome) => void) => {
        this.#later(() => {
          this.#expire();
          const wasHeld = this.#holders.delete(owner);
          this.#giveOut();
          this.#later(() => done({ status: wasHeld ? 'released' : 'gone' }));
        });
      },
      problems: () => [],
    } as Partial<LockBackend> as LockBackend;
  }

  /** @param undo what was given up, the backend undoes */
  #run<Outcome extends object>(
    command: () => Outcome,
    done: (outcome: Outcome | Unavailable) => void,
    undo = () => {},
  ): void {
    const fails = this.random() < this.failing;
    const runs = !fails || this.random() < 0.5;
    this.#later(() => {
      const outcome = runs ? command() : undefined;
      this.#later(() => {
        if (outcome && !fails) {
          done(outcome);
          return;
        }
        undo();
        done({ status: 'unavailable', causes: [new NodeError('store', 'down')] });
      });
    });
  }

  #acquire(
    { key, hold, owner, ttlMs, place, turns = 1 }: AcquireRequest,
    sentAt: number,
  ): Exclude<AcquireOutcome, Unavailable> {
    this.#expire();
    const id = place?.ticket ?? owner;
    if (this.#holders.has(owner) || this.#holders.size === 0) {
      this.#remove(id);
      this.#holders.set(owner, this.now() + ttlMs);
      const fencingToken = this.#lastToken + 1;
      this.#lastToken += turns;
      const grant = { key, owner, fencingToken, lastToken: this.#lastToken, nobodyBefore: this.#nobodyBefore };
      return { status: 'acquired', grant, sentAt };
    }
    const isNew = place !== undefined && !this.#queue.some(({ ticket }) => ticket === id);
    const placeWasLost = isNew && place.isTaken;
    if (isNew) this.#queue = [...this.#queue, place].sort((one, other) => one.arrivedAt - other.arrivedAt);
    this.#giveOut();
    if (this.#holders.has(owner)) return this.#acquire({ key, hold, owner, ttlMs, place, turns }, sentAt);
    const [holder, endsAt] = [...this.#holders][0] ?? [undefined, this.now()];
    return {
      status: 'contended',
      owner: holder,
      remainingMs: holder === undefined ? undefined : endsAt - this.now(),
      queued: place !== undefined,
      placeWasLost,
    };
  }

  #leave(ticket: string): void {
    this.#remove(ticket);
    this.#holders.delete(ticket);
    this.#giveOut();
  }

  #expire(): void {
    for (const [owner, endsAt] of this.#holders) if (endsAt <= this.now()) this.#holders.delete(owner);
    this.#giveOut();
  }

  /** Hands what is free over to the first in the queue, or wakes it. */
  #giveOut(): void {
    const [first] = this.#queue;
    if (first === undefined || this.#holders.size > 0) return;
    if (this.waiting === 'wakes') {
      this.#tell((listener) => listener.onTurn(first.ticket));
      return;
    }
    this.#queue.shift();
    const { ticket: owner, turns } = first;
    this.#holders.set(owner, this.now() + HANDED_OVER_MS);
    const fencingToken = this.#lastToken + 1;
    const lastToken = (this.#lastToken += turns);
    const nobodyBefore = this.#nobodyBefore;
    const grantOf = (key: string) => ({ key, owner, fencingToken, lastToken, nobodyBefore });
    this.#tell((listener) => listener.onHandOver(owner, { ttlMs: HANDED_OVER_MS, grantOf }));
    this.#giveOut();
  }

  #tell(message: (listener: WaitListener) => void): void {
    if (!this.isListening || this.random() < 0.1) return;
    this.#later(() => {
      if (this.#listener) message(this.#listener);
    });
  }

  get #nobodyBefore(): number {
    return this.#queue[0]?.arrivedAt ?? performance.now();
  }

  #waitQueueOf(waitQueue: Required<WaitQueue>): WaitQueue | undefined {
    if (this.waiting === 'has no queue') return undefined;
    return this.waiting === 'hands over' ? waitQueue : { ...waitQueue, turn: undefined };
  }

  #remove(ticket: string): void {
    this.#queue = this.#queue.filter((place) => place.ticket !== ticket);
  }

  #later(step: () => void): void {
    this.#steps.push(step);
  }
}
