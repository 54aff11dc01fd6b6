import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launchEtcd, newEtcdMembers, type EtcdMember } from '../../servers/launch-etcd.js';
import { killProcess } from '../support/kill-process.js';
import { until } from '../support/until.js';

/** The parts of etcd's answers that are read. */
export interface EtcdAnswer {
  readonly message?: string;
  readonly kvs?: readonly unknown[];
  readonly leader?: string;
  readonly header?: { readonly member_id: string };
}

/** Members of etcd on 127.0.0.1, which die with this process, however it ends. */
export class EtcdCluster {
  readonly #children: ChildProcess[] = [];

  private constructor(
    private readonly members: readonly EtcdMember[],
    private readonly dir: string,
  ) {}

  static async start(count = 1): Promise<EtcdCluster> {
    const dir = await mkdtemp(join(tmpdir(), 'etcd-'));
    const cluster = new EtcdCluster(await newEtcdMembers(count), dir);
    await Promise.all(cluster.members.map((_, at) => cluster.restart(at)));
    return cluster;
  }

  get endpoints(): [string, ...string[]] {
    return this.members.map(({ port }) => `http://127.0.0.1:${port}`) as [string, ...string[]];
  }

  /** Asks a member, like `etcdctl`. */
  async ask(path: string, body: object = {}, at = 0): Promise<EtcdAnswer> {
    const signal = AbortSignal.timeout(2_000);
    const request = { method: 'POST', body: JSON.stringify(body), signal };
    return (await (await fetch(`${this.endpoints[at]}/v3/${path}`, request)).json()) as EtcdAnswer;
  }

  /**
   * The leading member, once there is one.
   * @param gone a member that is not asked
   */
  async leader(gone?: number): Promise<number> {
    const found = await until(
      async () => {
        for (const at of [...this.members.keys()].filter((each) => each !== gone)) {
          const { leader, header } = await this.ask('maintenance/status', {}, at).catch((): EtcdAnswer => ({}));
          if (leader !== undefined && leader === header?.member_id) return { at };
        }
        return undefined;
      },
      { what: 'etcd has a leader' },
    );
    return found.at;
  }

  /** SIGSTOP: it answers nothing, and accepts connections that it will serve later. */
  pause(at: number): void {
    this.#children[at]!.kill('SIGSTOP');
  }

  resume(at: number): void {
    this.#children[at]!.kill('SIGCONT');
  }

  kill(at: number): Promise<void> {
    return killProcess(this.#children[at]!);
  }

  /** On the same ports, with its old data. */
  async restart(at: number): Promise<void> {
    this.#children[at] = await launchEtcd(this.members[at]!, this.members, this.dir);
  }

  async stop(): Promise<void> {
    await Promise.all(this.#children.map((_, at) => this.kill(at)));
    await rm(this.dir, { recursive: true, force: true });
  }
}
