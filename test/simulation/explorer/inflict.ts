import type { LossKind, Revived } from '../../chaos/history.js';
import type { Link } from '../link.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import type { Fault } from './plan.js';
import { revivedOn } from './revived.js';
import type { World } from './world.js';

/** The requests whose reply is lost: requests that change locks. */
const SCRIPT = /evalsha/i;

/** The message that a lock was handed over. */
const HAND_OVER = /\r\ns?message\r\n[^]* \d{16}\r\n/;
/** This soon after work has begun, the answer to the extension of its lock is on its way. */
const BEGINS_WITHIN_US = 100;

/** Starts a fault now, which ends after its time. */
export function inflict(world: World, fault: Fault): void {
  const { kind, forUs, byUs = 0 } = fault;
  const { scheduler } = world;
  const number = fault.process ?? 0;
  const running = world.processes[number]!;
  const { process, application } = running;
  const server = world.servers[fault.server ?? 0]!;
  const link = world.links[number]![fault.server ?? 0]!;
  const own = world.links.map((links) => links[fault.server ?? 0]!);
  scheduler.trace(`fault ${JSON.stringify(fault)}`);
  const during = (begin: () => void, end: () => void) => {
    begin();
    scheduler.after(forUs, end);
  };
  const stop = (run: () => void) => {
    if (process.isDead) return;
    run();
    const until = (scheduler.now + forUs) / 1_000;
    world.note({ type: 'fault', kind: 'stop-worker', worker: number, until });
  };
  switch (kind) {
    case 'pause':
      return stop(() => during(() => process.pause(), () => process.resume())); // prettier-ignore
    case 'block':
      return stop(() => process.block(forUs));
    case 'suspend':
      return stop(() => process.suspend(forUs));
    case 'jump-wall':
      return process.jumpWall(byUs);
    case 'kill':
      return kill(world, fault);
    case 'close':
      return close(world, fault);
    case 'burst':
      return inProcess(world, number, () => application.burst());
    case 'flush-amid-burst':
      return inProcess(world, number, () => application.burst(() => flush(world, server)));
    case 'force-release':
      return inProcess(world, number, () => application.burst((key) => application.forceRelease(key)));
    case 'slow-requests':
    case 'slow-replies': {
      const way = kind === 'slow-requests' ? 'requests' : 'replies';
      return during(() => (link.slowedUs[way] += byUs), () => (link.slowedUs[way] -= byUs)); // prettier-ignore
    }
    case 'hold':
      return during(() => link.hold(), () => link.release()); // prettier-ignore
    case 'hold-requests':
      return during(() => link.hold(['requests']), () => link.release(['requests'])); // prettier-ignore
    case 'hold-replies':
      return during(() => link.hold(['replies']), () => link.release(['replies'])); // prettier-ignore
    case 'sever':
      return during(() => link.sever(), () => link.mend()); // prettier-ignore
    case 'half-open-subscriber':
      return [...link.connections].forEach((connection) => connection.isSubscriber && connection.halfOpen('server'));
    case 'isolate':
      return during(() => own.forEach((each) => each.sever()), () => own.forEach((each) => each.mend())); // prettier-ignore
    case 'refuse':
      return during(() => refuse(link), () => (link.refuses = false)); // prettier-ignore
    case 'mute':
      return during(() => mute(link), () => (link.isMute = false)); // prettier-ignore
    case 'lose-reply':
      return link.loseReplyTo(SCRIPT);
    case 'pause-amid-hand-over':
      return pauseAmidHandOver(world, fault, link);
    case 'half-open-at-server':
      return [...link.connections].forEach((connection) => connection.halfOpen('server'));
    case 'half-open-at-client':
      return [...link.connections].forEach((connection) => connection.halfOpen('client'));
    case 'pause-server':
      return during(() => server.pause(), () => server.resume()); // prettier-ignore
    case 'crash-kept':
    case 'crash-empty':
    case 'crash-old':
      return crash(world, server, fault);
    case 'flush':
      return flush(world, server);
    case 'forget-scripts':
      return server.data.scripts.clear();
    case 'oom':
    case 'loading':
    case 'readonly':
    case 'noscript':
    case 'busy':
      server.refusal = kind;
      return scheduler.after(forUs, () => {
        if (server.refusal === kind) server.refusal = undefined;
      });
    case 'fail-over':
      return world.stage.failOver(server);
    case 'move-slot':
      return world.stage.moveSlot(`key ${Math.floor(fault.at / 1_000) % world.plan.keys}`, forUs);
    case 'jump-clock':
      server.clock.offsetUs += byUs;
      if (byUs > 0) lose(world, server, 'clock-ahead');
      return;
  }
}

/** Code of the application runs in its event loop. */
function inProcess(world: World, number: number, act: () => void): void {
  world.processes[number]!.process.receive(act);
}

function kill(world: World, { process: number = 0, forUs }: Fault): void {
  if (world.processes[number]!.process.isDead) return;
  world.killProcess(number);
  const until = (world.scheduler.now + forUs) / 1_000;
  world.note({ type: 'fault', kind: 'kill-worker', worker: number, until });
  world.scheduler.after(forUs, () => world.startProcess(number));
}

/**
 * The next message about a lock that was handed over comes late. If work begins with it all the same, the process does
 * not run when the extension of that lock is answered, until more time has passed than the grant lasts.
 */
function pauseAmidHandOver(world: World, fault: Fault, link: Link): void {
  const { process: number = 0, forUs, byUs = 0 } = fault;
  const begun = world.processes[number]!.application.lateGrants;
  link.delayReply(HAND_OVER, byUs, () =>
    world.scheduler.after(BEGINS_WITHIN_US, () => {
      const { process, application } = world.processes[number]!;
      if (world.isOver || process.isDead) return;
      if (application.lateGrants <= begun) pauseAmidHandOver(world, fault, link);
      else inflict(world, { at: fault.at, kind: 'pause', forUs, process: number });
    }),
  );
}

/** The application closes, even with waiting calls, and is started again. */
function close(world: World, { process: number = 0, forUs }: Fault): void {
  const running = world.processes[number]!;
  if (running.process.isDead || running.application.isClosing) return;
  inProcess(world, number, () => running.application.closeNow());
  const look = () => {
    if (running.process.isDead) return;
    if (!running.application.isClosed) world.scheduler.after(20_000, look);
    else world.whenLeft(running, () => world.scheduler.after(forUs, () => world.startProcess(number)));
  };
  look();
}

function refuse(link: Link): void {
  link.refuses = true;
  for (const connection of [...link.connections]) connection.break();
}

function mute(link: Link): void {
  refuse(link);
  link.refuses = false;
  link.isMute = true;
}

function flush(world: World, server: SimulatedServer): void {
  if (!server.isPrimary) return;
  server.data.flush();
  lose(world, server, 'flush', { forgets: forgetsAll(world, server) });
}

/**
 * Whether a lock was on a server that has lost its data. If there is another primary, the lock may have been on that
 * one: in a Cluster by its slot, and after a failover on the replaced primary, as long as it does not know that.
 */
function forgetsAll(world: World, server: SimulatedServer): boolean {
  return world.servers.every((other) => other === server || !other.isPrimary);
}

function crash(world: World, server: SimulatedServer, { kind, forUs, byUs = 0 }: Fault): void {
  if (!server.isUp) return;
  const takenAt = world.scheduler.now;
  const data = server.data.copy();
  const restart = () => {
    if (!server.isUp) return;
    const kept = kind === 'crash-kept' ? server.data.copy() : data;
    const { isPrimary } = server;
    const { primaryPort } = server.replication;
    server.kill();
    world.scheduler.after(forUs, () => {
      server.start(kind === 'crash-empty' ? [] : kept);
      world.stage.followAgain(server, primaryPort);
      if (!isPrimary) return;
      if (kind === 'crash-empty')
        lose(world, server, 'restart-empty', { forgets: forgetsAll(world, server), at: takenAt });
      if (kind === 'crash-old') lose(world, server, 'restart-old', { at: takenAt, revived: revivedOn(server) });
    });
  };
  world.scheduler.after(kind === 'crash-old' ? byUs : 0, restart);
}

interface HowLost {
  readonly forgets?: boolean;
  readonly at?: number;
  readonly revived?: Revived;
}

function lose(
  world: World,
  server: SimulatedServer,
  kind: LossKind,
  { forgets, at = world.scheduler.now, revived }: HowLost = {},
): void {
  world.lose(server, at, kind === 'clock-ahead');
  const node = world.servers.indexOf(server);
  world.note({ type: 'fault', kind, node, until: world.nowMs, forgets, revived }, at / 1_000);
}
