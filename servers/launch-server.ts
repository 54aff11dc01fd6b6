import type { ChildProcess } from 'node:child_process';
import { candidatePort } from './candidate-port.js';
import { killWithParent } from './kill-with-parent.js';

export interface LaunchedServer {
  readonly process: ChildProcess;
  readonly port: number;
}

export interface ServerProgram {
  readonly name: string;
  /** What it prints once it accepts connections. */
  readonly readyText: RegExp;
  /** Starts it on a port of 127.0.0.1, with its output in pipes. */
  readonly start: (port: number) => ChildProcess;
}

/**
 * Starts a server, which dies with this process however this process ends.
 * @param port default: any free one
 * @returns when it accepts connections
 */
export async function launchServer(program: ServerProgram, port?: number): Promise<LaunchedServer> {
  for (;;) {
    const candidate = port ?? (await candidatePort());
    const child = program.start(candidate);
    killWithParent(child);
    try {
      await ready(child, program);
      return { process: child, port: candidate };
    } catch (error) {
      if (port === undefined && String(error).includes('Address already in use')) continue;
      throw error;
    }
  }
}

function ready(child: ChildProcess, { name, readyText }: ServerProgram): Promise<void> {
  const outputs = [child.stdout!, child.stderr!];
  return new Promise((resolve, reject) => {
    let output = '';
    const read = (text: string): void => {
      output += text;
      if (!readyText.test(output)) return;
      for (const stream of outputs) stream.off('data', read).resume();
      resolve();
    };
    for (const stream of outputs) stream.setEncoding('utf8').on('data', read);
    child.once('error', reject);
    child.once('close', () => reject(new Error(`${name} ended before it was ready, it printed:\n${output}`)));
  });
}
