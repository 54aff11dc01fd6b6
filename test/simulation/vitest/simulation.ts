import { Network, type Host } from '../network.js';
import { SimulatedProcess } from '../process.js';
import { SimulatedSentinels } from '../redis/sentinel.js';
import { SimulatedServer, type ServerOptions } from '../redis/simulated-server.js';
import { Scheduler } from '../scheduler.js';

/** The environment of one test file: a process in simulated time, with its own network. */
export class Simulation {
  readonly scheduler: Scheduler;
  readonly process: SimulatedProcess;
  readonly network: Network;
  readonly host: Host;
  readonly random: () => number;
  /** By the port of the primary. */
  readonly #sentinels = new Map<number, SimulatedSentinels>();

  constructor(seed: string, file: string) {
    this.scheduler = new Scheduler(seed);
    this.process = new SimulatedProcess(this.scheduler, 'test');
    this.network = new Network(this.scheduler);
    this.host = this.network.hostOf(this.process);
    this.random = this.scheduler.stream(`Math.random of ${file}`);
  }

  startServer(port: number | undefined, isPersistent: boolean, settings?: ServerOptions): SimulatedServer {
    return new SimulatedServer(this.scheduler, this.network, port ?? this.network.freePort(), isPersistent, settings);
  }

  /** The Sentinels of a primary. */
  sentinels(name: string, primaryPort: number, downAfterMs: number): SimulatedSentinels {
    let sentinels = this.#sentinels.get(primaryPort);
    if (!sentinels) {
      const primary = this.network.listenerOf(primaryPort) as SimulatedServer;
      sentinels = new SimulatedSentinels(this.scheduler, this.network, { name, primary, downAfterMs });
      this.#sentinels.set(primaryPort, sentinels);
    }
    return sentinels;
  }
}

/** Modules may be loaded again for each test file; their replacements stay. */
const worker = globalThis as { simulation?: Simulation };

/** The simulation of the running test file. */
export function simulation(): Simulation {
  if (!worker.simulation) throw new Error('No simulation has begun: is test/simulation/vitest/setup.ts a setup file?');
  return worker.simulation;
}

/**
 * Begins a new one: the rest of the last one never happens.
 * @param file the test file, each of which has its own random numbers: Nest makes ids for its modules from them, which
 * it stores on classes that later files use, too
 */
export function beginSimulation(seed: string, file = ''): Simulation {
  return (worker.simulation = new Simulation(seed, file));
}
