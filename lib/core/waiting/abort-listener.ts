interface Listener {
  calls: Set<() => void>;
  tellAll: () => void;
}

const listeners = new WeakMap<AbortSignal, Listener>();

/**
 * Calls that wait with the same signal share one listener on it: of more than ten Node warns, and it removes each
 * in linear time.
 * @returns takes the call out again
 */
export function onAbort(signal: AbortSignal, tell: () => void): () => void {
  const { calls, tellAll } = listeners.get(signal) ?? listen(signal);
  calls.add(tell);
  return () => {
    if (!calls.delete(tell) || calls.size > 0) return;
    signal.removeEventListener('abort', tellAll);
    listeners.delete(signal);
  };
}

function listen(signal: AbortSignal): Listener {
  const calls = new Set<() => void>();
  const tellAll = () => {
    for (const tell of [...calls]) tell();
  };
  const listener = { calls, tellAll };
  signal.addEventListener('abort', tellAll);
  listeners.set(signal, listener);
  return listener;
}
