import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import real from '../vitest.config.js';

/** The files that need nothing but what is simulated. They run on real servers, too, by `npm test`. */
const FILES = [
  'backends/{abandoned-acquire,clients,echoed-credentials,in-time,lock-values}',
  'backends/redlock-{extend,fencing,late-vote,votes}',
  'leader/{election,faults}',
  'lease/{asking,lock-handle,losing}',
  'service/{begin-with-grant,called-back,deadlines,exclusion,force-release,given-up-holds,hold,holding,lock-sets}',
  'service/{outage,ping,redlock-waiting,reentrancy,shutdown,width}',
  'sets/faults',
];

/** Runs these files, unchanged, in simulated time, on simulated servers and sockets: `npm run test:simulated`. */
export default defineConfig({
  ...real,
  resolve: {
    alias: [
      // In place of the class that starts real servers.
      {
        find: /^(\.\.?\/)+(support\/)?redis-server\.js$/,
        replacement: fileURLToPath(new URL('vitest/redis-server.ts', import.meta.url)),
      },
      ...Object.entries(real.resolve!.alias!).map(([find, replacement]) => ({
        find,
        replacement: String(replacement),
      })),
    ],
  },
  test: {
    ...real.test,
    include: FILES.map((file) => `test/${file}.test.ts`),
    globalSetup: [], // no server has to be there
    setupFiles: ['reflect-metadata', fileURLToPath(new URL('vitest/setup.ts', import.meta.url))],
    maxWorkers: 2,
  },
});
