import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach } from 'vitest';
import { RUNTIMES } from './runtimes.js';

const folder = fileURLToPath(new URL('..', import.meta.url));
const runtime = process.env.TEST_RUNTIME as keyof typeof RUNTIMES;

// Vitest starts its workers itself: if they were processes of Node.js, all tests would pass.
if (!(runtime in process.versions)) throw new Error(`This is not ${runtime}: ${JSON.stringify(process.versions)}`);

beforeEach(({ task }) => {
  const file = relative(folder, task.file.filepath);
  const isDifferent = RUNTIMES[runtime].differences.some(
    (each) => each.file === file && task.name.includes(each.title),
  );
  if (isDifferent) Object.assign(task, { fails: true });
});
