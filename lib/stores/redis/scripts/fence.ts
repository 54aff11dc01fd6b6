/** The first word in the reply of a Redlock node that has lost its data since it was admitted to vote. */
export const WIPED = 'wiped';

/** How far a node of a Redlock lets a proposed token be from its own time, in microseconds. */
export const LIMIT_US = 1_000_000;
