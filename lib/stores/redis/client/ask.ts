import { CommandFault, type RedisClient } from './redis-client.js';

export type Answer = { value: unknown } | { refusal: string };

/** Sends several commands at once. Rejects with a `CommandFault` when the connection fails. */
export function ask(
  client: Pick<RedisClient, 'call'>,
  commands: readonly (readonly [command: string, ...args: string[]])[],
): Promise<Answer[]> {
  return Promise.all(
    commands.map(([command, ...args]) => client.call(command, ...args).then((value) => ({ value }), refusalOf)),
  );
}

function refusalOf(fault: unknown): Answer {
  if (fault instanceof CommandFault && fault.kind === 'refused') return { refusal: fault.message };
  throw fault;
}
