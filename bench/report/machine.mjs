import { readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

/** The properties of the machine that the figures depend on. */
export function describeMachine() {
  const { version } = readJson(new URL('../../package.json', import.meta.url));
  const { dependencies } = readJson(new URL('../package.json', import.meta.url));
  return {
    machine: {
      cpu: cpus()[0]?.model.trim(),
      cores: cpus().length,
      memoryGb: Math.round(totalmem() / 2 ** 30),
      system: process.platform,
      node: process.version,
    },
    versions: { 'nest-redis-lock': version, ...dependencies },
  };
}

function readJson(url) {
  return JSON.parse(readFileSync(url, 'utf8'));
}
