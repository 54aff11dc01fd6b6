/** One end of a connection: what the other end sends arrives there. */
export interface Peer {
  /** The time at this end, in microseconds. */
  readonly now: number;
  onBytes(bytes: Buffer): void;
  /** The other end has sent all, or has closed the connection. */
  onEnd(): void;
  /** The connection broke. */
  onReset(): void;
}

/** An end of a connection, as the other one sees it: what it is told arrives later. */
export type RemotePeer = Omit<Peer, 'now'>;

/** What accepts connections on a port. */
export interface Listener {
  /**
   * @param client the other end: what it is told reaches it through the network
   * @returns the end at the server
   */
  accept(client: RemotePeer): Peer;
}

/** What the one who connects is told. */
export interface Connecting {
  onOpen(server: RemotePeer): void;
  onRefused(): void;
}
