import type { Entry, Unstamped } from '../../chaos/history.js';
import type { LockParcel } from '../../chaos/library.js';
import { Link } from '../link.js';
import { Network, type Host } from '../network.js';
import { EPOCH_US, SimulatedProcess } from '../process.js';
import { ReplyError, type Reply } from '../redis/replies.js';
import { SimulatedServer } from '../redis/simulated-server.js';
import { Scheduler } from '../scheduler.js';
import { Application } from './application.js';
import type { Copies } from './copies.js';
import { reach, type Marks } from './marks.js';
import { isRedlock, type Plan } from './plan.js';
import { QueueWitness } from './queue-witness.js';
import { Resource } from './resource.js';
import { DRIFT, Stage, type Failover } from './stage.js';
import { crowdOf, Witness, type Violation } from './witness.js';

const FIRST_PORT = 7_001;
/** How long a packet takes between two machines, in microseconds. */
const LATENCY_US = [60, 300] as const;
/** How far wall clocks of processes are ahead, or behind, in microseconds. */
const PROCESS_OFFSET_US = 60_000_000;
/** How long a process that has closed its locks may still have timers and connections, in microseconds. */
const LEAVES_WITHIN_US = 5_000_000;

/** A process of the application, from its start to its end. */
export interface RunningProcess {
  readonly number: number;
  readonly incarnation: number;
  readonly process: SimulatedProcess;
  readonly host: Host;
  readonly random: () => number;
  readonly pid: number;
  readonly hostname: string;
  readonly application: Application;
}

/** Everything in a simulation. */
export class World {
  readonly scheduler: Scheduler;
  readonly stage: Stage;
  readonly servers: readonly SimulatedServer[];
  /** By the number of the process, then of the server. */
  readonly links: readonly (readonly Link[])[];
  /** The last one of each number. */
  readonly processes: RunningProcess[] = [];
  readonly history: Entry[] = [];
  readonly marks: Marks = new Map();
  readonly parcels: LockParcel[] = [];
  readonly witness: Witness;
  readonly queueWitness = new QueueWitness((rule, text) => this.complain(rule, text));
  readonly resource: Resource;
  readonly violations: Violation[] = [];
  /** Whether no more faults may begin. */
  isOver = false;
  /** Whether all faults are over, and the application knows it. */
  isCalm = false;
  /** The errors of the simulation's own code. */
  failure?: unknown;
  readonly #network: Network;

  constructor(
    readonly plan: Plan,
    private readonly library: Copies,
    onTrace?: (line: string) => void,
  ) {
    this.scheduler = new Scheduler(`${plan.seed}`);
    this.scheduler.onTrace = onTrace;
    this.#network = new Network(this.scheduler);
    this.stage = new Stage(this.scheduler, this.#network, plan.topology, FIRST_PORT, (each) => this.#failsOver(each));
    this.servers = this.stage.servers;
    for (const server of this.servers) server.onAnswered = (args, reply) => this.#answered(server, args, reply);
    this.witness = new Witness(this.scheduler, this.servers, this.stage.quorum);
    this.resource = new Resource((entry) => this.note(entry));
    this.links = Array.from({ length: plan.processes }, (_, process) =>
      this.servers.map((_server, number) => this.#layLink(process, number)),
    );
  }

  /** In milliseconds, as in histories. */
  get nowMs(): number {
    return this.scheduler.now / 1_000;
  }

  note(entry: Unstamped, at = this.nowMs): void {
    const dated: Entry = { at, ...entry };
    this.history.push(dated);
    this.scheduler.trace(JSON.stringify(dated));
  }

  complain(rule: string, text: string): void {
    this.violations.push({ rule, text });
  }

  /** Starts the process of this number, for the first time or again. */
  startProcess(number: number): void {
    const { scheduler } = this;
    const incarnation = (this.processes[number]?.incarnation ?? -1) + 1;
    const name = `${number}.${incarnation}`;
    const draw = scheduler.stream(`clocks of process ${number}`);
    const rate = 1 + (2 * draw() - 1) * DRIFT;
    const offsetUs = Math.round((2 * draw() - 1) * PROCESS_OFFSET_US);
    const process = new SimulatedProcess(scheduler, name, {
      rate,
      wallUs: EPOCH_US + scheduler.now + offsetUs,
      onUncaught: (error) => this.unhandled(number, error),
      onCallback: () => copy.enter(home),
    });
    // Links to Sentinels never fail.
    const others = this.#layLink(number, -1);
    const host = this.#network.hostOf(process, (port) => this.links[number]![port - FIRST_PORT] ?? others);
    const home = {
      process,
      host,
      random: scheduler.stream(`chance of process ${name}`),
      pid: number + 1,
      hostname: `host-${number}`,
    };
    const copy = this.library.take(home, this.plan.mutant);
    this.queueWitness.serving.add(copy.library.ACQUIRE_TOGETHER.sha);
    const application = new Application(this, copy.library, { number, incarnation, process });
    this.processes[number] = { ...home, number, incarnation, application };
    scheduler.trace(`process ${name} starts`);
    process.receive(() => application.run().catch((error: unknown) => (this.failure ??= error)));
  }

  killProcess(number: number): void {
    const { process, host, application } = this.processes[number]!;
    if (process.isDead) return;
    application.abandon();
    this.scheduler.trace(`process ${process.name} is killed`);
    process.kill();
    host.abandon();
  }

  /**
   * The process has closed its locks: it has to end by itself. Calls `then` when it has, or should have; not if it is
   * killed.
   */
  whenLeft({ process, host }: RunningProcess, then: () => void): void {
    const deadline = this.scheduler.now + LEAVES_WITHIN_US;
    const look = () => {
      if (process.isDead) return;
      const left = [`${process.pending} timers`, `${host.sockets.size} sockets`].filter(
        (text) => !text.startsWith('0'),
      );
      if (left.length > 0 && this.scheduler.now < deadline) {
        this.scheduler.after(50_000, look);
        return;
      }
      if (left.length > 0)
        this.complain(
          'process does not end',
          `process ${process.name} has ${left.join(' and ')} although it has closed`,
        );
      process.kill();
      host.abandon();
      then();
    };
    look();
  }

  unhandled(worker: number, error: unknown): void {
    this.note({ type: 'unhandled', worker, message: error instanceof Error ? (error.stack ?? '') : String(error) });
  }

  /** A server may have lost its data. */
  lose(server: SimulatedServer, at = this.scheduler.now, isUnnoticed = false): void {
    this.witness.losses.push({ at, until: this.scheduler.now, server, isUnnoticed });
    this.witness.forget(server);
  }

  /** What the former primary had not replicated yet is lost, and both may grant locks for a while. */
  #failsOver(failover: Failover): void {
    const { at, until, servers, revived } = failover;
    if (until === Infinity) {
      this.witness.losses.push(failover);
      for (const server of servers) this.witness.forget(server);
      reach(this.marks, 'failover');
    } else this.note({ type: 'fault', kind: 'swap-primary', until: until / 1_000, revived }, at / 1_000);
  }

  #layLink(process: number, server: number): Link {
    return new Link(this.scheduler, this.scheduler.stream(`link ${process} ${server}`), {
      latencyUs: LATENCY_US,
      onLost: (bytes) => {
        if (/\r\ns?message\r\n/.test(bytes.toString('latin1'))) reach(this.marks, 'lost message');
      },
    });
  }

  #answered(server: SimulatedServer, [name = '', sha = '', count, ...args]: readonly string[], reply: Reply): void {
    if (reply instanceof ReplyError && reply.text.startsWith('ASK ')) reach(this.marks, 'moved slot');
    if (!/^eval(sha)?$/i.test(name)) return;
    const keys = args.slice(0, Number(count));
    const others = args.slice(Number(count));
    const locks = keys.filter((key) => key.startsWith('lock:{') && key.endsWith('}'));
    if (locks.length > 1) reach(this.marks, 'batch');
    this.witness.ran(server, keys, this.scheduler.now);
    // Nothing is known about lost or old data; and clocks that jump renumber places.
    const hasLost = this.witness.losses.some((loss) => loss.key === undefined && (loss.server ?? server) === server);
    if (server.isPrimary && !hasLost) this.queueWitness.ran(server, sha, keys, others, reply);
    const values = locks.map((key) => server.data.entry(key)?.value);
    if (values.some((value) => typeof value === 'string' && value.endsWith('='))) reach(this.marks, 'kept lock');
    for (const { isOfReaders, holders } of values.flatMap(crowdOf))
      if (holders.length > 1) reach(this.marks, isOfReaders ? 'readers' : 'permits');
    if (values.some((value) => value !== undefined) && this.#hasLost(server)) this.marks.set('re-admission', 1);
  }

  #hasLost(server: SimulatedServer): boolean {
    return isRedlock(this.plan.topology) && this.witness.losses.some((loss) => loss.server === server);
  }
}
