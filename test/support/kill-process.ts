import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/**
 * Ends a process, unless it has already ended.
 * @param signal kill -9 by default, which also ends a paused process
 */
export async function killProcess(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}
