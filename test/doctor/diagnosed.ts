import type { DynamicModule } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  type Finding,
  type LockDiagnosis,
  type LockService,
  type NodeDiagnosis,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { RecordingLogger } from '../support/nest-app.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

export const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];

export const codes = (findings: readonly Finding[]) => findings.map(({ severity, code }) => `${severity} ${code}`);
export const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;

/** A command may take this long, so that no server on a busy machine seems far away. */
export const commandTimeoutMs = 10_000;

/** The report of the doctor once each server answers within the second that the doctor allows. */
export function diagnosed(locks: LockService): Promise<LockDiagnosis<NodeDiagnosis>> {
  return until(
    async () => {
      const diagnosis = await locks.diagnose<NodeDiagnosis>();
      return diagnosis.nodes.every(({ reachable }) => reachable) ? diagnosis : undefined;
    },
    { what: 'each server answers the doctor in time' },
  );
}

/** The report of the doctor on servers that answer. */
export async function diagnosisOf(options: RedisLockModuleOptions): Promise<LockDiagnosis<NodeDiagnosis>> {
  return diagnosed(await openLocks({ commandTimeoutMs, ...options }));
}

/** The log lines about locks of an application that starts and ends. */
export async function logOf(locks: DynamicModule): Promise<string[]> {
  const lines: string[] = [];
  const log = new (class extends RecordingLogger {
    override log(...[message]: unknown[]): void {
      if (String(message).startsWith('Locks of')) lines.push(`log ${message}`);
    }
  })();
  const testing = await Test.createTestingModule({ imports: [locks] })
    .setLogger(log)
    .compile();
  await testing.close();
  return [...lines, ...log.lines];
}

/**
 * The same, with servers that answer: on a busy machine not always within the second that the check at the start
 * allows.
 */
export function logOfAnswering(locks: DynamicModule): Promise<string[]> {
  return until(
    async () => {
      const lines = await logOf(locks);
      return lines.some((line) => line.includes('no answer within')) ? undefined : lines;
    },
    { what: 'each server answers the check at the start' },
  );
}
