import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { killWithParent } from '../../servers/kill-with-parent.js';

const PROGRAM = fileURLToPath(new URL('./shop.program.js', import.meta.url));
const CLOSING_MS = 1_500;

/** One instance of the shop, in a process of its own. */
export class ShopInstance {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  #url = '';
  #stopping = false;
  #wasPaused = false;
  #logged = '';

  /** @param signal stops the instance, even while it starts */
  constructor(
    readonly name: string,
    env: Record<string, string>,
    signal: AbortSignal,
  ) {
    this.#process = fork(PROGRAM, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      // Only the parent gets a Ctrl-C: it stops everything in order.
      detached: true,
    });
    this.#exited = once(this.#process, 'exit');
    for (const output of [this.#process.stdout, this.#process.stderr]) {
      // To stderr: stdout is for the figures. While an instance stops, it refuses waiting calls, as expected: that is not shown.
      output?.on('data', (text: Buffer) => {
        if (this.#wasPaused) this.#logged += stripVTControlCharacters(text.toString());
        else if (!this.#stopping) process.stderr.write(text);
      });
    }
    signal.addEventListener('abort', () => void this.stop(), { once: true });
  }

  /** Waits until the instance accepts requests. */
  async listening(): Promise<void> {
    const ready = once(this.#process, 'message').then(([message]) => (message as { url: string }).url);
    const ended = this.#exited.then(() => {
      throw new Error(`${this.name} did not start: its output above says why.`);
    });
    this.#url = await Promise.race([ready, ended]);
  }

  get url(): string {
    return this.#url;
  }

  /** The message about a lost lock that the instance has logged since it was paused: the report shows it. */
  get loggedLoss(): string | undefined {
    return /(Lock .* was lost: .*)$/m.exec(this.#logged)?.[1];
  }

  get pid(): number {
    return this.#process.pid!;
  }

  async get<T>(path: string): Promise<T> {
    const response = await this.#ask(path);
    if (!response.ok) throw new Error(`${this.name} answered ${response.status} to GET ${path}.`);
    return (await response.json()) as T;
  }

  post(path: string, body?: object): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    return this.#ask(path, { method: 'POST', ...(body && { headers, body: JSON.stringify(body) }) });
  }

  async #ask(path: string, request?: RequestInit): Promise<Response> {
    try {
      return await fetch(this.#url + path, request);
    } catch (cause) {
      throw new Error(`${this.name} did not answer to ${path}.`, { cause });
    }
  }

  /** Pauses the process, with its connections open. If the demonstration is killed, the paused process is killed too. */
  pause(): void {
    this.#wasPaused = true;
    killWithParent(this.#process);
    process.kill(this.pid, 'SIGSTOP'); // by pid: Deno regards a child as ended once `kill()` has sent it any signal
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** Kills the process with -9: it releases no lock and closes no connection. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** Lets the instance finish and release its locks. After a time limit it is killed: a client may keep its connection open. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#process.kill('SIGTERM');
    const impatience = setTimeout(() => this.#process.kill('SIGKILL'), CLOSING_MS);
    await this.#exited;
    clearTimeout(impatience);
  }
}
