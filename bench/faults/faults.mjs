/**
 * The faults, one for each cell. `act(cell)` returns when the fault is over; `cell.begins()` and `cell.ends()` record its
 * time. It hits the victim, process 0, in a turn that it requests.
 *
 *   title      as on the page
 *   form       of the store: `one` by default, `replica`, `nodes` or `cluster` of Redis
 *   stores     if only some stores know this fault
 *   keepsLock  the store keeps the lock of the holder, so that neither a holder nor its call has a reason to fail
 *   listens    only participants with a subscription notice it
 *   processes, ttlMs, workMs, watchMs   if a cell differs from `cell.mjs`
 *
 * Work has three lengths: `short` fits into the ttl; `long` does not, and only libraries that renew get it (others get
 * `short`); `quick` ends soon after the fault.
 */
const INTO_TURN_MS = 300; // from the begin of the requested turn to the fault
const HOUR_MS = 3_600_000;
const ONLY_REDIS = ['redis'];

const nothing = () => {};

/** A fault in a turn of the victim. */
const inTurn = (work, fault) => async (cell) => {
  await cell.order({ holdMs: cell.holdMs(work) });
  await cell.sleep(INTO_TURN_MS);
  await fault(cell);
};

const atOnce = (fault) => lasting(0, fault, nothing);

/** @param durationMs a number, or a function of the cell */
const lasting = (durationMs, begin, end) => async (cell) => {
  cell.begins();
  await begin(cell);
  await cell.sleep(typeof durationMs === 'function' ? durationMs(cell) : durationMs);
  await end(cell);
  cell.ends();
};

/** Longer than the ttl by this much. */
const outlasting = (ms) => (cell) => cell.ttlMs + ms;

/** The other processes pause, so that the cut hits the intended command. */
const acquireCut = (what) => async (cell) => {
  await cell.rest();
  const cut = cell.cutNext(what);
  cell.orderLater({ holdMs: 200 });
  await cut;
  await atOnce(nothing)(cell);
  cell.run();
};
const releaseCut = (what) => async (cell) => {
  await cell.rest();
  await cell.order({ holdMs: 200 });
  await cell.cutNext(what);
  await atOnce(nothing)(cell);
  cell.run();
};

const pausesVictim = [(cell) => cell.signalVictim('SIGSTOP'), (cell) => cell.signalVictim('SIGCONT')];
const restarts = [(cell) => cell.store.kill(0), (cell) => cell.store.start(0)];
const hole = (process) => [(cell) => (cell.proxies[process].isHole = true), (cell) => cell.proxies[process].heal()];
const failsOver = inTurn(
  'long',
  lasting(
    1_000,
    (cell) => cell.loseMaster(),
    (cell) => cell.store.promote(),
  ),
);
const nodesStopped = (count) =>
  inTurn(
    'long',
    lasting(
      4_000,
      (cell) => cell.store.stop(count),
      (cell) => cell.store.go(),
    ),
  );

/** As in applications: a lease of 30 s for work of 1 s. */
const AS_USUAL = { ttlMs: 30_000, workMs: 1_000 };

export const FAULTS = {
  none: { title: 'none', act: lasting(5_000, nothing, nothing) },
  'long-work': {
    title: 'work longer than the ttl',
    async act(cell) {
      await cell.order({ holdMs: 2.2 * cell.ttlMs });
      cell.begins();
      await cell.over();
      cell.ends();
    },
  },
  'holder-killed': {
    title: 'holder killed',
    act: inTurn(
      'short',
      atOnce((cell) => cell.killVictim()),
    ),
  },
  'holder-paused': { title: 'holder paused', act: inTurn('quick', lasting(outlasting(1_500), ...pausesVictim)) },
  'write-under-way': {
    title: 'holder paused, its write under way',
    async act(cell) {
      await cell.order({ holdMs: 100, writeDelayMs: cell.ttlMs + 1_000 }, 'sent');
      await lasting(outlasting(2_000), ...pausesVictim)(cell);
    },
  },
  'loop-blocked': {
    title: 'event loop of the holder blocked',
    async act(cell) {
      await cell.order({ holdMs: 1_000, blockAtMs: INTO_TURN_MS, blockMs: outlasting(1_500)(cell) });
      await cell.sleep(INTO_TURN_MS);
      await lasting(outlasting(1_500), nothing, nothing)(cell);
    },
  },
  'machine-suspended': {
    title: 'all processes and the store paused together',
    act: inTurn(
      'quick',
      lasting(
        outlasting(1_500),
        (cell) => cell.suspend(),
        (cell) => cell.resume(),
      ),
    ),
  },
  'clock-ahead': {
    title: 'clock of the holder 1 h ahead',
    keepsLock: true,
    act: inTurn(
      'long',
      atOnce((cell) => cell.tellVictim({ aheadMs: HOUR_MS })),
    ),
  },
  'clock-back': {
    title: 'clock of the holder 1 h back',
    keepsLock: true,
    act: inTurn(
      'long',
      atOnce((cell) => cell.tellVictim({ aheadMs: -HOUR_MS })),
    ),
  },
  'acquire-reply-lost': { title: 'reply of acquire lost', keepsLock: true, act: acquireCut('reply') },
  'release-request-lost': { title: 'request of release lost', keepsLock: true, act: releaseCut('request') },
  'release-reply-lost': { title: 'reply of release lost', keepsLock: true, act: releaseCut('reply') },
  'holder-hole': { title: 'network hole of the holder', act: inTurn('long', lasting(outlasting(2_000), ...hole(0))) },
  'waiter-hole': {
    title: 'network hole of a waiter',
    keepsLock: true,
    act: inTurn('short', lasting(outlasting(2_000), ...hole(1))),
  },
  'slow-link': {
    title: 'slow link, 50 ms each way',
    keepsLock: true,
    act: lasting(
      5_000,
      (cell) => (cell.proxies[0].delayMs = 50),
      (cell) => (cell.proxies[0].delayMs = 0),
    ),
  },
  'half-open-subscription': {
    title: 'half-open subscription',
    keepsLock: true,
    stores: ONLY_REDIS,
    listens: true,
    act: atOnce((cell) => (cell.proxies[0].isDeaf = true)),
  },
  'restarted-empty': {
    title: 'Redis restarted empty',
    stores: ONLY_REDIS,
    act: inTurn('short', lasting(300, ...restarts)),
  },
  'restarted-with-data': {
    title: 'store restarted with its data',
    keepsLock: true,
    keepsData: true,
    act: inTurn('long', lasting(300, ...restarts)),
  },
  'store-paused': {
    title: 'store paused for 3 s',
    act: inTurn(
      'long',
      lasting(
        3_000,
        (cell) => cell.store.stop(),
        (cell) => cell.store.go(),
      ),
    ),
  },
  flushall: {
    title: 'FLUSHALL',
    stores: ONLY_REDIS,
    act: inTurn(
      'long',
      atOnce((cell) => cell.store.flushAll()),
    ),
  },
  'script-flush': {
    title: 'SCRIPT FLUSH',
    keepsLock: true,
    stores: ONLY_REDIS,
    act: inTurn(
      'long',
      atOnce((cell) => cell.store.flushScripts()),
    ),
  },
  'out-of-memory': {
    title: 'out of memory for 2 s',
    stores: ONLY_REDIS,
    act: inTurn(
      'long',
      lasting(
        2_000,
        (cell) => cell.store.limitMemory(1),
        (cell) => cell.store.limitMemory(0),
      ),
    ),
  },
  failover: { title: 'failover to a replica 1 s behind', stores: ONLY_REDIS, form: 'replica', act: failsOver },
  'failover-20': {
    title: 'failover with 20 processes',
    stores: ONLY_REDIS,
    form: 'replica',
    processes: 20,
    act: failsOver,
  },
  'usual-killed': {
    title: 'ttl 30 s, work 1 s: holder killed',
    ...AS_USUAL,
    watchMs: 36_000,
    act: inTurn(
      'short',
      atOnce((cell) => cell.killVictim()),
    ),
  },
  'usual-reply-lost': {
    title: 'ttl 30 s, work 1 s: reply of acquire lost',
    ...AS_USUAL,
    watchMs: 36_000,
    act: acquireCut('reply'),
  },
  'usual-restarted-empty': {
    title: 'ttl 30 s, work 1 s: Redis restarted empty',
    stores: ONLY_REDIS,
    ...AS_USUAL,
    act: inTurn('short', lasting(300, ...restarts)),
  },
  'slot-moved': {
    title: 'Cluster: the slot of the key moves',
    keepsLock: true,
    stores: ONLY_REDIS,
    form: 'cluster',
    act: inTurn(
      'long',
      atOnce((cell) => cell.moveSlots()),
    ),
  },
  'nodes-none': {
    title: 'none',
    stores: ONLY_REDIS,
    form: 'nodes',
    act: lasting(4_000, nothing, nothing),
  },
  'nodes-1-stopped': { title: '1 node paused for 4 s', stores: ONLY_REDIS, form: 'nodes', act: nodesStopped(1) },
  'nodes-2-stopped': { title: '2 nodes paused for 4 s', stores: ONLY_REDIS, form: 'nodes', act: nodesStopped(2) },
  'nodes-3-stopped': { title: '3 nodes paused for 4 s', stores: ONLY_REDIS, form: 'nodes', act: nodesStopped(3) },
  'nodes-restarted-empty': {
    title: '2 nodes down, and 1 of the others restarted empty',
    stores: ONLY_REDIS,
    form: 'nodes',
    async act(cell) {
      await cell.rest();
      await cell.store.kill(3, 4);
      await cell.order({ holdMs: cell.holdMs('long') });
      cell.run();
      await cell.sleep(INTO_TURN_MS);
      await lasting(
        0,
        (cell) => cell.store.kill(2),
        (cell) => cell.store.start(2, 3, 4),
      )(cell);
    },
  },
};
