/**
 * A port below the range from which systems number outgoing connections. Thus a client that keeps reconnecting to a dead
 * server can neither take its port nor connect to itself. From 10,000 to 19,999, so that a cluster's bus port (10,000
 * higher) is nobody's either. It may be in use: whoever listens on it tries another one then.
 */
export function candidatePort(): number {
  return 10_000 + Math.floor(Math.random() * 10_000);
}
