import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { killWithParent } from '../../servers/kill-with-parent.js';

const PROGRAM = fileURLToPath(new URL('./shop.program.js', import.meta.url));
const CLOSING_MS = 1_500;

/** One instance of the shop, in a process of its own. */
export class ShopInstance {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  #url = '';
  #stopping = false;

  /** @param signal stops it, also while it starts */
  constructor(
    readonly name: string,
    env: Record<string, string>,
    signal: AbortSignal,
  ) {
    this.#process = fork(PROGRAM, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      // A Ctrl-C is for the parent, which stops everything in its order.
      detached: true,
    });
    this.#exited = once(this.#process, 'exit');
    for (const output of [this.#process.stdout, this.#process.stderr]) {
      // To stderr: stdout is for the figures. That it refuses those who wait when it is stopped is no news.
      output?.on('data', (text: Buffer) => this.#stopping || process.stderr.write(text));
    }
    signal.addEventListener('abort', () => void this.stop(), { once: true });
  }

  /** Waits until it takes requests. */
  async listening(): Promise<void> {
    const ready = once(this.#process, 'message').then(([message]) => (message as { url: string }).url);
    const ended = this.#exited.then(() => {
      throw new Error(`${this.name} did not start: it says above why.`);
    });
    this.#url = await Promise.race([ready, ended]);
  }

  get url(): string {
    return this.#url;
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

  /** It stands still, with its connections open. It would stay so if the demonstration were killed: so it goes with it. */
  pause(): void {
    killWithParent(this.#process);
    process.kill(this.pid, 'SIGSTOP'); // by number: in Deno a child that was sent any signal by `kill()` counts as ended
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** kill -9: it releases nothing and says goodbye to nobody. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** Lets it finish and release what it holds; not for long, should a client keep its connection. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#process.kill('SIGTERM');
    const impatience = setTimeout(() => this.#process.kill('SIGKILL'), CLOSING_MS);
    await this.#exited;
    clearTimeout(impatience);
  }
}
