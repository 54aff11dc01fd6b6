/** How long a fencing counter outlives its last use: a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/** The first word in the reply of a Redlock node that has lost its data since it was admitted to vote. */
export const WIPED = 'wiped';
