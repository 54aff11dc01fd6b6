/** The conditions that the figures of a run depend on. */
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { describeMachine } from '../report/machine.mjs';

export function describeConditions() {
  const { machine, versions } = describeMachine();
  const root = createRequire(new URL('../../package.json', import.meta.url)); // the library uses their clients
  const version = (name) => root(`${name}/package.json`).version;
  const redis = execFileSync(process.env.REDIS_SERVER, ['--version'], { encoding: 'utf8' });
  return {
    startedAt: new Date().toISOString(),
    machine,
    redis: /v=(\S+)/.exec(redis)[1],
    clients: { ioredis: version('ioredis'), redis: version('redis') },
    versions,
  };
}
