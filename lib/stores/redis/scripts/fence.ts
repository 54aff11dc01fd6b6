/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/** The reply of a Redlock node that has lost its data since it was let vote begins with this word. */
export const WIPED = 'wiped';
