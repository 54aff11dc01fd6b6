import { Test } from '@nestjs/testing';
import { RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { RecordingLogger } from './nest-app.js';
import { until } from './until.js';

/**
 * The reason why an application does not start with these servers. It would start with a server that does not answer
 * its check within a second, which happens on a busy machine.
 */
export function failureOf(options: RedisLockModuleOptions): Promise<Error> {
  const failure = () =>
    Test.createTestingModule({ imports: [RedisLockModule.forRoot(options)] })
      .setLogger(new RecordingLogger())
      .compile()
      .then(
        (application) => application.close().then(() => undefined),
        (reason: Error) => reason,
      );
  return until(failure, { what: 'the application does not start' });
}
