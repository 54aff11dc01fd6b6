/**
 * One cell: one contestant under one fault, once, with its own store, proxies and processes. `run-cell.mjs` ends all of
 * them.
 */
import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../cell/statistics.mjs';
import { FAULTS } from './faults.mjs';
import { judge } from './judge.mjs';
import { startProxy } from './proxy.mjs';
import { randomOf } from './random.mjs';
import { createResource } from './resource.mjs';
import { PARTICIPANTS, TTL_MS } from './settings.mjs';
import { STORES } from './stores.mjs';
import { Worker } from './worker-process.mjs';

const KEY = 'hot';
const PROCESSES = 3;
const START_MS = 120_000; // for 20 processes on a busy machine
const BEFORE_MS = 1_500;
const AFTERWARDS_MS = 8_000;
const JITTER_MS = 200; // the seed moves the fault by up to this much

const { contestant, fault: faultId, seed, scratch } = JSON.parse(process.argv[2]);
const participant = PARTICIPANTS[contestant];
const fault = FAULTS[faultId];
const { ttlMs = TTL_MS, processes = PROCESSES } = fault;

// If the program that started this cell is gone, even by kill -9, this ends the whole process group of the cell.
process.on('disconnect', () => {
  rmSync(scratch, { recursive: true, force: true });
  process.kill(-process.pid, 'SIGKILL');
});

run().then(
  (result) => process.send({ result }),
  ({ name, message }) => process.send({ failure: `${name}: ${message}` }),
);

async function run() {
  const store = await STORES[participant.store](fault, scratch);
  const resource = createResource();
  const proxies = store.hasProxies
    ? await Promise.all(Array.from({ length: processes }, () => startProxy(store.ports[0])))
    : [];
  const workers = Array.from({ length: processes }, (_, index) => {
    const { workMs } = fault;
    const { settings, module = contestant } = participant;
    const ports = proxies.length > 0 ? [proxies[index].port] : store.ports;
    const terms = { ttlMs, ports, isCluster: store.isCluster, settings, processes };
    return new Worker(
      { ...terms, contestant: module, key: KEY, workMs, seed: seed * 1_000 + index },
      scratch,
      resource,
    );
  });
  const cell = new Cell(store, proxies, workers);
  await Promise.all(workers.map((worker) => worker.hears('ready', START_MS)));
  cell.run();
  await sleep(BEFORE_MS + cell.jitterMs());
  await fault.act(cell);
  await sleep(fault.watchMs ?? AFTERWARDS_MS);

  const endedAt = nowMs();
  for (const worker of workers) worker.send({ stop: true });
  await Promise.all(workers.map((worker) => worker.hears('stopped', 1_500).catch(() => {}))); // some calls never return
  const crashed = workers.filter(({ hasEnded, isKilled }) => hasEnded && !isKilled).length;
  const { times, killedAt } = cell;
  const journals = workers.map((worker) => worker.notes());
  return { ...judge({ journals, fault: times, killedAt, endedAt, sum: resource.sum(), ttlMs }), crashed };
}

/** The functions that a fault can use. */
class Cell {
  ttlMs = ttlMs;
  times = {};
  killedAt = undefined;
  sleep = sleep;
  #random = randomOf(seed);
  #workers;
  #victim;

  constructor(store, proxies, workers) {
    Object.assign(this, { store, proxies });
    this.#workers = workers;
    this.#victim = workers[0];
  }

  begins() {
    this.times.start = nowMs();
  }

  ends() {
    this.times.end = nowMs();
  }

  jitterMs() {
    return this.#random(0, JITTER_MS);
  }

  holdMs(work) {
    if (work === 'quick') return 1_000;
    if (fault.workMs) return fault.workMs;
    return work === 'long' && participant.renews ? 1.7 * ttlMs : ttlMs / 2;
  }

  /**
   * Requests a turn of the victim.
   * @param until `begun`, or `sent`: its write is on its way
   */
  async order(terms, until = 'begun') {
    this.orderLater(terms);
    await this.#victim.hears(until, 10 * ttlMs);
    if (until === 'begun') await sleep(this.jitterMs());
  }

  orderLater(terms) {
    this.#victim.send({ order: terms });
  }

  /** The requested turn is over. */
  over() {
    return this.#victim.hears('over', 10 * ttlMs);
  }

  run() {
    for (const worker of this.#workers) worker.send({ rest: false });
  }

  async rest() {
    for (const worker of this.#workers) worker.send({ rest: true });
    await Promise.all(this.#workers.map((worker) => worker.hears('resting', 10 * ttlMs)));
  }

  /**
   * Cuts the connection at the next command about the lock of the victim.
   * @param what `request` or `reply`
   */
  async cutNext(what) {
    if (!participant.sendsNothing) await this.proxies[0].cutNext(what, participant.wire ?? KEY);
  }

  /** Moves the key of the lock to another master. */
  async moveSlots() {
    if (!participant.sendsNothing) await this.store.moveSlots(KEY);
  }

  signalVictim(signal) {
    this.#victim.signal(signal);
  }

  tellVictim(message) {
    this.#victim.send(message);
  }

  killVictim() {
    this.#victim.kill();
    this.killedAt = nowMs();
  }

  suspend() {
    for (const worker of this.#workers) worker.signal('SIGSTOP');
    this.store.stop();
  }

  resume() {
    this.store.go();
    for (const worker of this.#workers) worker.signal('SIGCONT');
  }

  async loseMaster() {
    const port = await this.store.loseMaster();
    for (const proxy of this.proxies) {
      proxy.target = port;
      proxy.cutAll();
    }
  }
}
