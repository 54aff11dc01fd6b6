import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../core/time/time-limit.js';

/** How long after a message the subscription is trusted, in milliseconds. */
export const HEARD_LATELY_MS = 500;
/** How long a published message may take to arrive, in milliseconds. */
export const ECHO_LIMIT_MS = 1_000;
/** The message that an inbox publishes to itself. No ticket looks like it. */
export const ECHO = '?';

/**
 * Finds out that a subscription is dead without the client noticing: the server, or a device in between, has dropped the
 * connection, and a subscriber sends nothing that would reveal it. When there is reason for doubt the inbox publishes a message to
 * itself.
 */
export class EchoCheck {
  #isRunning = false;

  /**
   * @param heard a channel, with the time when something last came on it
   * @param publish has the server publish `ECHO` there. @returns how many listen, by the server's count
   * @returns whether it is deaf. One check runs at a time, and none if something came a moment ago: then it is not said to be
   * @throws the error of `publish`; an Error when it was not answered, as that of a client whose connection has broken may not be
   */
  async isDeaf(heard: { readonly heardAt: number }, publish: () => Promise<number>): Promise<boolean> {
    const askedAt = performance.now();
    if (this.#isRunning || askedAt - heard.heardAt < HEARD_LATELY_MS) return false;
    this.#isRunning = true;
    try {
      const listeners = await inTime(publish(), ECHO_LIMIT_MS, () => {
        throw new Error('no answer');
      });
      if (listeners > 0 && heard.heardAt < askedAt) await delay(ECHO_LIMIT_MS, undefined, { ref: false });
      return heard.heardAt < askedAt;
    } finally {
      this.#isRunning = false;
    }
  }
}
