import { createServer } from 'node:net';

/**
 * Below the range from which systems number outgoing connections: thus a client that keeps reconnecting to a dead server can
 * neither take its port nor connect to itself. Up to 19,999, so that a cluster's bus port (10,000 higher) is nobody's either.
 */
const FIRST_PORT = 10_000;
const BLOCK_SIZE = 500;
const BLOCKS = 20;

let claimed: Promise<number> | undefined;
let taken = 0;

/**
 * A port that nobody got lately: each process goes round in a block of its own, so that a server of another test does not
 * come up where one has just been killed, and answer its clients. It may be in use: whoever listens on it tries another one then.
 */
export async function candidatePort(): Promise<number> {
  const block = await (claimed ??= claimBlock());
  return block + 1 + (taken++ % (BLOCK_SIZE - 1));
}

/** By listening on its first port for as long as this process runs. Where all blocks are claimed, two processes share one. */
async function claimBlock(): Promise<number> {
  const start = Math.floor(Math.random() * BLOCKS);
  const blocks = Array.from({ length: BLOCKS }, (_, at) => FIRST_PORT + ((start + at) % BLOCKS) * BLOCK_SIZE);
  for (const block of blocks) if (await listens(block)) return block;
  return blocks[0]!;
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const claim = createServer((socket) => socket.destroy());
    claim.once('error', () => resolve(false));
    claim.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      claim.unref();
      resolve(true);
    });
  });
}
