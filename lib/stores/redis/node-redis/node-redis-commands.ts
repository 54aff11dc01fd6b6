import type { Credentials } from '../../node/problem-of.js';
import type { ScriptCall } from '../client/redis-client.js';
import { faultOf } from './node-redis.js';

/** Sends commands to one server or to a Cluster. */
export abstract class NodeRedisCommands {
  protected abstract readonly credentials: Credentials;
  /** The prefix of all keys. It is added here, since node-redis adds it only for commands that have their own method. */
  protected abstract readonly prefix: string;

  /** Sends a command. @param key one of its keys */
  protected abstract send(args: readonly string[], key?: string): Promise<unknown>;

  run(call: ScriptCall): void {
    this.#run(call, true);
  }

  #run(call: ScriptCall, bySha: boolean): void {
    const { script, keys, args } = call;
    const names = this.prefix === '' ? keys : keys.map((key) => this.prefix + key);
    const what = bySha ? ['EVALSHA', script.sha] : ['EVAL', script.source];
    this.#sent([...what, String(keys.length), ...names, ...args.map(String)], names[0]).then(
      (answer) => call.answered(answer),
      (error: unknown) => {
        const isUnknown = bySha && error instanceof Error && error.message.startsWith('NOSCRIPT');
        if (isUnknown && call.isWanted) {
          call.sentAgain();
          this.#run(call, false);
        } else {
          call.failed(faultOf(error, this.credentials));
        }
      },
    );
  }

  async call(command: string, ...args: (string | number)[]): Promise<unknown> {
    try {
      return await this.send([command, ...args.map(String)]);
    } catch (error) {
      throw faultOf(error, this.credentials);
    }
  }

  /** Rejects if the client throws. */
  #sent(args: readonly string[], key?: string): Promise<unknown> {
    try {
      return this.send(args, key);
    } catch (error) {
      return Promise.reject(error);
    }
  }
}
