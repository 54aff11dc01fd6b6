import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LockError, type LockService } from '../../lib/index.js';
import { openLocks } from '../support/open-locks.js';
import { grantOfTurn, HostileServer, reaction, refusal, refusalOfTurn, type Reaction } from './hostile-server.js';
import { fuzz } from './seeds.js';

/** Longer than all limits of the calls below together, on a busy machine. */
const FOR_EVER_MS = 5_000;

let servers: HostileServer[];
beforeAll(async () => {
  servers = await Promise.all([HostileServer.start(), HostileServer.start(), HostileServer.start()]);
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

const source = ({ port }: HostileServer) => ({
  host: '127.0.0.1',
  port,
  protocol: 2 as const,
  // No command before it is ready, so that it becomes ready soon.
  connectionName: '',
  disableClientInfo: true,
  enableReadyCheck: false,
  retryStrategy: () => 1,
});

/** The answers that random ones rarely are: another holder, the same on all nodes, and none at all. */
const REFUSED: Reaction = { bytes: refusal(50, 'another@0000000000000001') };
const GRANTED: Reaction = { bytes: '$16\r\n0000000000000001\r\n' };
/** The same for a process that has just waited. */
const TURNS: Reaction[] = [{ bytes: refusalOfTurn(50, 'another@1') }, { bytes: grantOfTurn('0000000000000001') }];
const ONE_OF_EACH: Reaction[] = [GRANTED, REFUSED, ...TURNS, 'hang up'];

/** Runs under a lock, and returns the tokens; rejects if there is no result for a long time. */
async function attempt(locks: LockService): Promise<{ tokens: number[]; error?: unknown }> {
  const tokens: number[] = [];
  let timer: NodeJS.Timeout | undefined;
  const hung = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('it hangs')), FOR_EVER_MS);
  });
  const options = { ttlMs: 1_000, waitMs: 20, watchdog: false };
  const running = locks.withLock('key', options, ({ fencingToken }) => void tokens.push(fencingToken));
  try {
    return await Promise.race([
      running.then(
        () => ({ tokens }),
        (error: unknown) => ({ tokens, error }),
      ),
      hung,
    ]);
  } finally {
    clearTimeout(timer);
  }
}

const isToken = (token: number) => Number.isSafeInteger(token) && token > 0;

/** It ran once, or the error says why not. */
function note(outcomes: Record<string, number>, tokens: number[], error: unknown): void {
  const outcome = tokens.length === 1 ? 'ran' : error instanceof LockError ? error.name : `wrong: ${String(error)}`;
  expect(outcome).toMatch(/^(ran|Lock(Contended|Unavailable)Error)$/);
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
}

describe('a server that answers its scripts in any way', () => {
  let outcomes: Record<string, number>;
  beforeEach(() => {
    outcomes = {};
  });

  it('a server that answers in any way neither hangs a call nor lets it run without a token, on one node [G23]', async () => {
    const [server] = servers;
    const locks = await openLocks({ redis: source(server!), commandTimeoutMs: 30, lazyConnect: true });
    await fuzz(
      fc.asyncProperty(reaction, async (drawn) => {
        await server!.react(drawn);
        const { tokens, error } = await attempt(locks);
        expect(tokens.filter((token) => !isToken(token))).toEqual([]);
        note(outcomes, tokens, error);
      }),
      40,
      ONE_OF_EACH.map((each) => [each]),
    );
    expect(Object.keys(Object.prototype)).toEqual([]);
    // The server was asked, not only found to be out of order.
    expect(outcomes.ran).toBeGreaterThan(1);
    expect(outcomes.LockContendedError).toBeGreaterThan(1);
    expect(outcomes.LockUnavailableError).toBeGreaterThan(1);
  });

  it('a server that answers in any way neither hangs a call nor lets it run without a token, as any node of a Redlock [G24]', async () => {
    const locks = await openLocks({
      redlock: servers.map(source),
      commandTimeoutMs: 30,
      lazyConnect: true,
      admission: false,
    });
    await fuzz(
      fc.asyncProperty(
        fc.oneof(
          reaction.map((same) => [same, same, same]),
          fc.tuple(reaction, reaction, reaction),
        ),
        async (drawn) => {
          await Promise.all(servers.map((server, index) => server.react(drawn[index]!)));
          const { tokens, error } = await attempt(locks);
          expect(tokens.filter((token) => !isToken(token))).toEqual([]);
          note(outcomes, tokens, error);
        },
      ),
      40,
      ONE_OF_EACH.map((each) => [[each, each, each]]),
    );
    expect(outcomes.LockContendedError).toBeGreaterThan(1);
    expect(outcomes.LockUnavailableError).toBeGreaterThan(1);
  });
});
