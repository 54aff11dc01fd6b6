import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { RedisServer } from '../support/redis-server.js';

/** A redis-server of the run, whose data outlives a kill -9 unless it is told to lose it. */
export class ChaosNode {
  private constructor(
    readonly server: RedisServer,
    private readonly dir: string,
  ) {}

  static async start(folder: string, name: string): Promise<ChaosNode> {
    const dir = join(folder, name);
    mkdirSync(dir);
    // Written before each reply, which outlives the process. With `always` the node would say that it never loses a write.
    const args = ['--appendonly', 'yes', '--appendfsync', 'no', '--auto-aof-rewrite-percentage', '0'];
    return new ChaosNode(await RedisServer.start({ dir, args }), dir);
  }

  async restart({ empty, downMs }: { empty: boolean; downMs: number }, pause: (ms: number) => Promise<void>) {
    await this.server.kill();
    if (empty) rmSync(join(this.dir, 'appendonlydir'), { recursive: true, force: true });
    await pause(downMs);
    await this.server.restart();
  }

  /** What is there beside what stays for a day: the fencing counters, and what a restart is known by. */
  async leftKeys(): Promise<string[]> {
    return (await this.server.keys()).filter((key) => !key.endsWith(':fence') && key !== 'lock:guard');
  }

  async stop(): Promise<void> {
    await this.server.stop();
    if (existsSync(this.dir)) rmSync(this.dir, { recursive: true, force: true });
  }
}
