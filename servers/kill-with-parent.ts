import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';

/**
 * Starts a shell that waits for the end of its input, which comes when this process is gone, even by kill -9, and that
 * kills the child then. Detached, so that a Ctrl-C for the whole process group does not end it first.
 */
export function killWithParent(child: ChildProcess): void {
  if (child.pid === undefined) return;
  const guard = spawn('/bin/sh', ['-c', 'read -r _; kill -9 "$0"', String(child.pid)], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  guard.unref();
  (guard.stdin as Socket).unref?.(); // Bun has none
  // Once the child is gone its number may become another process's.
  child.once('exit', () => guard.kill('SIGKILL'));
}
