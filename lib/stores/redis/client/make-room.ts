import type { EventEmitter } from 'node:events';

/** Makes room for the listeners of one registration more, or less: Node.js takes more than ten for a leak. */
export function makeRoom(client: Pick<EventEmitter, 'getMaxListeners' | 'setMaxListeners'>, more: 1 | -1): void {
  const most = client.getMaxListeners();
  if (most > 0) client.setMaxListeners(most + more);
}
