interface Listener {
  calls: Set<() => void>;
  callAll: () => void;
}

const listeners = new WeakMap<AbortSignal, Listener>();

/**
 * Calls back when a signal aborts. All callbacks of a signal share one listener: Node.js warns of more than ten listeners, and removes each in
 * linear time.
 * @returns a function that removes the callback
 */
export function onAbort(signal: AbortSignal, call: () => void): () => void {
  const { calls, callAll } = listeners.get(signal) ?? listen(signal);
  calls.add(call);
  return () => {
    if (!calls.delete(call) || calls.size > 0) return;
    signal.removeEventListener('abort', callAll);
    listeners.delete(signal);
  };
}

/** Waits for an answer, unless a signal aborts first. @throws the reason of the signal */
export function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return answer;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    const stopListening = onAbort(signal, abort);
    answer.finally(stopListening).then(resolve, reject);
  });
}

function listen(signal: AbortSignal): Listener {
  const calls = new Set<() => void>();
  const callAll = () => {
    for (const call of [...calls]) call();
  };
  const listener = { calls, callAll };
  signal.addEventListener('abort', callAll);
  listeners.set(signal, listener);
  return listener;
}
