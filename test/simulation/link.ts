import type { Connecting, Listener, Peer, RemotePeer } from './peer.js';
import type { Scheduler } from './scheduler.js';

/** The shortest and the longest time of a packet on one machine, in microseconds. */
const LOOPBACK_US = [15, 50] as const;

export interface LinkOptions {
  /** How long a packet takes, in microseconds: at least, and less than. */
  readonly latencyUs?: readonly [least: number, below: number];
  /** Called with data that is sent and never arrives. */
  readonly onLost?: (bytes: Buffer) => void;
}

export type Way = 'requests' | 'replies';

const BOTH_WAYS: readonly Way[] = ['requests', 'replies'];

/** The link between a process and a server. It carries their data, in order, until something happens to it. */
export class Link {
  readonly connections = new Set<Connection>();
  /** How much longer packets take, in microseconds. */
  readonly slowedUs = { requests: 0, replies: 0 };
  /** Whether new connections reach nobody, while existing ones continue. */
  refuses = false;
  /** Whether new connections are accepted but never answered, as by a proxy whose server is gone. */
  isMute = false;
  readonly latencyUs: () => number;
  readonly onLost?: (bytes: Buffer) => void;
  readonly #holds = { requests: 0, replies: 0 };
  readonly #held: Record<Way, (() => void)[]> = { requests: [], replies: [] };
  #cuts = 0;
  #losesReplyTo?: RegExp;
  #late?: { readonly reply: RegExp; readonly us: number; readonly onArrival: () => void };

  constructor(
    readonly scheduler: Scheduler,
    random: () => number,
    { latencyUs: [least, below] = LOOPBACK_US, onLost }: LinkOptions = {},
  ) {
    this.latencyUs = () => least + Math.floor(random() * (below - least));
    this.onLost = onLost;
  }

  get isSevered(): boolean {
    return this.#cuts > 0;
  }

  /** @param listener the one that listens when the request to connect arrives */
  open(client: Peer, listener: () => Listener | undefined, connecting: Connecting): Connection {
    const connection = new Connection(this, client);
    connection.open(listener, connecting);
    return connection;
  }

  /** Packets do not arrive until `release` was called as often: then they are sent again, as in TCP. */
  hold(ways = BOTH_WAYS): void {
    for (const way of ways) this.#holds[way]++;
  }

  release(ways = BOTH_WAYS): void {
    for (const way of ways) if (--this.#holds[way] === 0) for (const send of this.#held[way].splice(0)) send();
  }

  /** Connections break, and none can be made until it was mended as often as severed. */
  sever(): void {
    this.#cuts++;
    for (const connection of [...this.connections]) connection.break();
  }

  mend(): void {
    if (this.#cuts > 0) this.#cuts--;
  }

  /** The next matching request still reaches the server, but its reply is lost, with the connection. */
  loseReplyTo(request: RegExp): void {
    this.#losesReplyTo = request;
  }

  /** The next matching reply, or message, takes this much longer. */
  delayReply(reply: RegExp, us: number, onArrival: () => void): void {
    this.#late = { reply, us, onArrival };
  }

  /** How much longer this reply takes, and what happens then. */
  delayOf(reply: Buffer): { readonly us: number; readonly onArrival: () => void } | undefined {
    const late = this.#late?.reply.test(reply.toString('latin1')) ? this.#late : undefined;
    if (late) this.#late = undefined;
    return late;
  }

  /** Whether the connection should break when this request has arrived. */
  breaksAfter(request: Buffer): boolean {
    if (!this.#losesReplyTo?.test(request.toString('latin1'))) return false;
    this.#losesReplyTo = undefined;
    return true;
  }

  /** Sends now, or at the release. */
  whenFree(way: Way, send: () => void): void {
    if (this.#holds[way] > 0) this.#held[way].push(send);
    else send();
  }
}

/** A request to subscribe. */
const SUBSCRIBE = /^\*\d\r\n\$\d+\r\ns?subscribe\r\n/i;

/** One connection through a link. */
export class Connection {
  /** Whether its client has subscribed. */
  isSubscriber = false;
  readonly #link: Link;
  readonly #client: Peer;
  readonly #requests: Direction;
  readonly #replies: Direction;
  #server?: Peer;
  #isAbandoned = false;

  constructor(link: Link, client: Peer) {
    this.#link = link;
    this.#client = client;
    this.#requests = new Direction(link, 'requests', () => client.now);
    this.#replies = new Direction(link, 'replies', () => this.#server?.now ?? link.scheduler.now);
    this.#replies.target = client;
    this.#replies.lateBy = (bytes) => link.delayOf(bytes);
  }

  open(listener: () => Listener | undefined, { onOpen, onRefused }: Connecting): void {
    const link = this.#link;
    this.#requests.pass(() => {
      if (this.#isAbandoned) return;
      const isReached = !link.isSevered && !link.refuses;
      const found = isReached ? listener() : undefined;
      if (!found) {
        this.#replies.pass(onRefused);
        return;
      }
      link.connections.add(this);
      if (link.isMute) this.#die();
      else {
        this.#server = found.accept(this.#replies);
        this.#requests.target = this.#server;
        this.#requests.onPassed = (bytes) => {
          this.isSubscriber ||= SUBSCRIBE.test(bytes.toString('latin1', 0, 40));
          if (link.breaksAfter(bytes)) this.#loseReply();
        };
      }
      link.scheduler.at(this.#replies.arrival(), () => {
        if (this.#isAbandoned) this.#server?.onReset();
        else onOpen(this.#requests);
      });
    });
  }

  /** Its client is gone, or does not want it any more. */
  abandon(): void {
    this.#isAbandoned = true;
    this.#link.connections.delete(this);
  }

  /** Both ends learn at once that it has broken. */
  break(): void {
    this.#die();
    this.#link.connections.delete(this);
    this.#server?.onReset();
    this.#client.onReset();
  }

  /** One end loses it, and the other does not learn about it. */
  halfOpen(loser: 'server' | 'client'): void {
    this.#die();
    if (loser === 'server') this.#server?.onReset();
    else this.#client.onReset();
  }

  #die(): void {
    this.#requests.isDead = this.#replies.isDead = true;
  }

  #loseReply(): void {
    this.#die();
    this.#link.connections.delete(this);
    this.#server?.onReset(); // after all data that has arrived
    this.#link.scheduler.at(this.#replies.arrival(), () => this.#client.onReset());
  }
}

/** One direction of a connection: data arrives in order. */
class Direction implements RemotePeer {
  /** No more data arrives. */
  isDead = false;
  target?: RemotePeer;
  onPassed?: (bytes: Buffer) => void;
  lateBy?: (bytes: Buffer) => { readonly us: number; readonly onArrival: () => void } | undefined;
  #last = 0;

  constructor(
    private readonly link: Link,
    private readonly way: Way,
    /** The time at the sender. */
    private readonly now: () => number,
  ) {}

  onBytes(bytes: Buffer): void {
    const late = this.lateBy?.(bytes);
    if (late) this.#last = Math.max(this.#last, this.now() + late.us);
    this.pass(
      () => {
        late?.onArrival();
        this.target?.onBytes(bytes);
        this.onPassed?.(bytes);
      },
      () => this.link.onLost?.(bytes),
    );
  }

  onEnd(): void {
    this.pass(() => this.target?.onEnd());
  }

  onReset(): void {
    this.pass(() => this.target?.onReset());
  }

  /** @param lost called instead, if it never arrives */
  pass(arrive: () => void, lost?: () => void): void {
    this.link.whenFree(this.way, () => {
      if (this.isDead) lost?.();
      else this.link.scheduler.at(this.arrival(), () => (this.isDead ? lost?.() : arrive()));
    });
  }

  /** The arrival time of data that is sent now. */
  arrival(): number {
    this.#last = Math.max(this.#last, this.now() + this.link.latencyUs() + this.link.slowedUs[this.way]);
    return this.#last;
  }
}
