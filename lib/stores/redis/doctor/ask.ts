import { CommandFault, type RedisClient } from '../client/redis-client.js';

/** The answer to one command. */
export type Answer = { value: unknown } | { refusal: string };

/** Sends several commands at once. Rejects with a `CommandFault` when the connection fails. */
export function ask(
  client: Pick<RedisClient, 'call'>,
  commands: readonly (readonly [command: string, ...args: string[]])[],
): Promise<Answer[]> {
  return Promise.all(commands.map(([command, ...args]) => client.call(command, ...args).then(valueOf, refusalOf)));
}

/** Tries whether a channel may be subscribed to, on a connection of its own. Never rejects. */
export function trySubscribing(
  { messages }: RedisClient,
  channel: string,
  connectionName: string,
  timeoutMs: number,
): Promise<Answer> {
  return tried(timeoutMs, (settle) =>
    messages.subscribe(channel, connectionName, {
      message: () => {},
      opened: () => settle({ value: undefined }),
      closed: () => settle(BROKEN),
      ended: () => settle(BROKEN),
      refused: (refusal) => settle({ refusal }),
    }),
  );
}

/** The same for a sharded channel, of one of the master's slots. Never rejects. */
export function trySubscribingSharded(
  { messages }: RedisClient,
  channel: string,
  connectionName: string,
  timeoutMs: number,
): Promise<Answer> {
  return tried(timeoutMs, (settle) => {
    const subscription = messages.subscribeSharded(connectionName, {
      message: () => {},
      opened: () =>
        void subscription
          .subscribe(channel)
          .then(valueOf, refusalOf)
          .catch(() => BROKEN)
          .then(settle),
      closed: () => settle(BROKEN),
    });
    return subscription;
  });
}

const BROKEN: Answer = { refusal: 'the connection broke' };

function tried(timeoutMs: number, begin: (settle: (answer: Answer) => void) => { close(): void }): Promise<Answer> {
  return new Promise((resolve) => {
    const settle = (answer: Answer) => {
      clearTimeout(timer);
      subscription.close();
      resolve(answer);
    };
    const timer = setTimeout(() => settle({ refusal: `no answer within ${Math.round(timeoutMs)} ms` }), timeoutMs);
    const subscription = begin(settle);
  });
}

function valueOf(value: unknown): Answer {
  return { value };
}

function refusalOf(fault: unknown): Answer {
  if (fault instanceof CommandFault && fault.kind === 'refused') return { refusal: fault.message };
  throw fault;
}
