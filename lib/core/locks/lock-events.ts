import { channel } from 'node:diagnostics_channel';
import { Subject } from 'rxjs';
import type { LockEvent } from '../../api/events.js';
import type { LockEventMessage } from '../../api/telemetry.js';
import { notify } from '../time/notify.js';

const published = channel('nest-redis-lock:event');

/**
 * The events of a service, which are also published on a channel of Node.js while it has subscribers. Observers run outside of the call that
 * caused an event. Most events are grants, releases and contention: the service need not make them unless `observed`.
 */
export class LockEvents extends Subject<LockEvent> {
  /** The same events, for subscribers that do not need grants, releases and contention. A subscription here does not count as `observed`. */
  readonly problems = new Subject<LockEvent>();

  constructor(private readonly registration: string) {
    super();
  }

  override get observed(): boolean {
    return super.observed || published.hasSubscribers;
  }

  override next(event: LockEvent): void {
    notify(this.#publish, event);
  }

  override complete(): void {
    notify(() => {
      this.problems.complete();
      super.complete();
    });
  }

  readonly warn = (key: string, message: string): void => this.next({ type: 'warning', key, message });

  readonly #publish = (event: LockEvent): void => {
    this.problems.next(event);
    super.next(event);
    if (published.hasSubscribers) published.publish(messageOf(this.registration, event));
  };
}

/** The message for the channel, without owner values. */
function messageOf(registration: string, event: LockEvent): LockEventMessage {
  if ('owner' in event) {
    const { owner: _, ...message } = event;
    return { registration, ...message };
  }
  if (event.type !== 'contended') return { registration, ...event };
  const { holder, ...message } = event;
  return { registration, ...message, holder: holder && { host: holder.host, pid: holder.pid } };
}
