import { performance } from 'node:perf_hooks';
import { nextTick, outsideOfCalls, setTimeout } from '../../../core/time/event-loop.js';
import { EXTEND, EXTEND_ACROSS } from '../scripts/lua.js';
import { ScriptFault } from '../scripts/script-fault.js';
import type { Reply, ScriptRunner } from '../scripts/script-runner.js';
import type { NodeExtension } from './node-answers.js';

/** So many extensions in one tick are a part of those that come due together: more will follow in a moment. */
const MANY = 50;
/** For so many milliseconds these are gathered: each write to a node costs more than the extensions in it. */
const GATHERING_MS = 20;
/** With a ttl shorter than this, in milliseconds, there is no time for that. */
const SHORT_TTL_MS = 1_000;
/** After so many milliseconds extensions across slots are tried again where they did not work. */
const AGAIN_MS = 60_000;

/** One extension. */
export interface Extension {
  /** The key of the lock. */
  readonly lock: string;
  readonly ttlMs: number;
  /** With its @. */
  readonly owner: string;
  /** Called with the answer, and the time when it was asked for. */
  readonly done: (extension: NodeExtension, sentAt: number) => void;
}

/**
 * Extends the locks of a Cluster, those of a node together, whatever their slots. Of these answers only `extended` is relied
 * on: a lock that was not extended so is asked for alone. So nothing is lost while slots move, or on servers that do not let
 * scripts use keys of several slots; there all are asked for by slot for a while: docs/adr/0031-extensions-in-a-cluster.md.
 */
export class ExtensionsAcrossSlots {
  #gathered: Extension[] = [];
  #againAt = 0;

  /**
   * @param keyPrefix the prefix that the client puts before keys, but not before arguments
   * @param read reads the reply to one extension
   */
  constructor(
    private readonly runner: ScriptRunner,
    private readonly keyPrefix: string,
    private readonly read: (reply: Reply | ScriptFault) => NodeExtension,
  ) {}

  extend(extension: Extension): void {
    const mayWait = extension.ttlMs >= SHORT_TTL_MS && performance.now() >= this.#againAt;
    if (!mayWait) this.#extendAlone(extension, extension.done);
    else if (this.#gathered.push(extension) === 1) nextTick(() => outsideOfCalls(() => this.#endTick()));
  }

  #endTick(): void {
    if (this.#gathered.length < MANY) this.#sendGathered();
    else outsideOfCalls(() => setTimeout(() => this.#sendGathered(), GATHERING_MS)).unref();
  }

  #sendGathered(): void {
    const extensions = this.#gathered;
    this.#gathered = [];
    for (const extension of extensions) {
      const { lock, ttlMs, owner, done } = extension;
      const args = [ttlMs, this.keyPrefix + lock, owner];
      this.runner.run(EXTEND_ACROSS, [lock], args, this.#readTogether, (answer, sentAt) => {
        if (answer) done(answer, sentAt);
        else this.#explain(extension);
      });
    }
  }

  /** Undefined: it has to be asked for alone. */
  readonly #readTogether = (reply: Reply | ScriptFault): NodeExtension | undefined => {
    const isKnown = reply instanceof ScriptFault ? !reply.isRefused : Number(reply) === 1;
    return isKnown ? this.read(reply) : undefined;
  };

  /** Finds out why a lock was not extended together with others. */
  #explain(extension: Extension): void {
    this.#extendAlone(extension, (answer, sentAt) => {
      if (answer.status === 'extended') this.#againAt = performance.now() + AGAIN_MS;
      extension.done(answer, sentAt);
    });
  }

  #extendAlone({ lock, ttlMs, owner }: Extension, done: Extension['done']): void {
    this.runner.run(EXTEND, [lock], [ttlMs, owner], this.read, done);
  }
}
