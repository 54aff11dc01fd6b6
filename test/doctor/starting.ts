import { Test } from '@nestjs/testing';
import { RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { RecordingLogger } from '../support/nest-app.js';
import { until } from '../support/until.js';

/** What of the log of an application that starts and ends tells of its locks. */
export async function logOf(options: RedisLockModuleOptions): Promise<string[]> {
  const lines: string[] = [];
  const log = new (class extends RecordingLogger {
    override log(...[message]: unknown[]): void {
      if (String(message).startsWith('Locks of')) lines.push(`log ${message}`);
    }
  })();
  const testing = await Test.createTestingModule({ imports: [RedisLockModule.forRoot(options)] })
    .setLogger(log)
    .compile();
  await testing.close();
  return [...lines, ...log.lines];
}

/** The same, with servers that answer: on a busy machine not always within the second that the check at the start gives them. */
export function logOfAnswering(options: RedisLockModuleOptions): Promise<string[]> {
  return until(
    async () => {
      const lines = await logOf(options);
      return lines.some((line) => line.includes('no answer within')) ? undefined : lines;
    },
    { what: 'each server answers the check at the start' },
  );
}
