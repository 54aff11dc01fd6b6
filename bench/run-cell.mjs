import { fork } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('cell/cell.mjs', import.meta.url));
const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * Runs one cell in its own process group, and leaves nothing of it behind. Never rejects.
 * @param node the Node.js that runs it
 * @param program the program that runs a cell
 */
export async function runCell(cell, limitMs, node = process.execPath, program = PROGRAM) {
  const begin = performance.now();
  // In memory where possible.
  const scratch = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'lock-bench-'));
  const child = fork(program, [JSON.stringify({ ...cell, scratch })], {
    execPath: node, // also of the processes that it starts
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let complaint = '';
  child.stderr.on('data', (data) => {
    complaint = (complaint + data).slice(-2_000);
  });
  const { pid } = child;
  const cleanUp = () => {
    try {
      if (pid !== undefined) process.kill(-pid, 'SIGKILL');
    } catch {
      // it is gone already
    }
    rmSync(scratch, { recursive: true, force: true });
  };
  process.once('exit', cleanUp);
  const outcome = await new Promise((resolve) => {
    const timer = setTimeout(() => resolve({ failure: `no result within ${limitMs / 1_000} s` }), limitMs);
    child.on('message', (message) => {
      clearTimeout(timer);
      resolve(message);
    });
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      resolve({ failure: `its process ended: ${signal ?? code}. ${reasonIn(complaint)}` });
    });
  });
  cleanUp();
  process.removeListener('exit', cleanUp);
  outcome.failure &&= outcome.failure.replaceAll(root, ''); // results are published
  return { ...cell, seconds: (performance.now() - begin) / 1_000, ...outcome };
}

/** The cause of its death, without the stack. */
function reasonIn(text) {
  return text.split('\n').find((line) => /^\w*Error\b/.test(line)) ?? '';
}
