/** One end of a connection: data of the other end arrives there. */
export interface Peer {
  /** The time at this end, in microseconds. */
  readonly now: number;
  onBytes(bytes: Buffer): void;
  /** The other end has sent everything, or has closed the connection. */
  onEnd(): void;
  /** The connection broke. */
  onReset(): void;
}

/** An end of a connection, as the other end sees it: its messages arrive there later. */
export type RemotePeer = Omit<Peer, 'now'>;

/** The acceptor of connections on a port. */
export interface Listener {
  /**
   * @param client the other end: messages reach it through the network
   * @returns the end at the server
   */
  accept(client: RemotePeer): Peer;
}

/** The outcome for the connecting end. */
export interface Connecting {
  onOpen(server: RemotePeer): void;
  onRefused(): void;
}
