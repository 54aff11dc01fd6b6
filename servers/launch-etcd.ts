import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { candidatePort } from './candidate-port.js';
import { provideEtcd } from './find-etcd.js';
import { launchServer } from './launch-server.js';

/** A member of a cluster of etcd, which may be the only one. */
export interface EtcdMember {
  readonly name: string;
  /** For clients. */
  readonly port: number;
  readonly peerPort: number;
}

/** Members that do not run yet, on ports that are free. */
export async function newEtcdMembers(count: number): Promise<EtcdMember[]> {
  const members: EtcdMember[] = [];
  for (let at = 1; at <= count; at++)
    members.push({ name: `m${at}`, port: await candidatePort(), peerPort: await candidatePort() });
  return members;
}

const urlOf = (port: number): string => `http://127.0.0.1:${port}`;

/**
 * Starts a member of a cluster on 127.0.0.1, new or with the data that it has left. It dies with this process however this process ends.
 * @param dir where the members of this cluster keep their files
 * @returns when it serves clients, which takes a majority of the members
 */
export async function launchEtcd(
  member: EtcdMember,
  cluster: readonly EtcdMember[],
  dir: string,
): Promise<ChildProcess> {
  const path = await provideEtcd();
  const settings = {
    name: member.name,
    'data-dir': join(dir, member.name),
    'listen-client-urls': urlOf(member.port),
    'advertise-client-urls': urlOf(member.port),
    'listen-peer-urls': urlOf(member.peerPort),
    'initial-advertise-peer-urls': urlOf(member.peerPort),
    'initial-cluster': cluster.map(({ name, peerPort }) => `${name}=${urlOf(peerPort)}`).join(),
    logger: 'zap',
  };
  const args = Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
  const program = {
    name: 'etcd',
    readyText: /serving client traffic/,
    start: () => spawn(path, args, { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] }),
  };
  return (await launchServer(program, member.port)).process;
}
