/**
 * The resource that the locks of a cell protect: two counters. One ignores tokens; the other refuses tokens that are
 * older than a token it has seen, even in a read. A turn reads, works, and writes the value + 1.
 */
export function createResource() {
  const plain = { value: 0, accepted: 0 };
  const fenced = { value: 0, accepted: 0, refused: 0, newest: 0 };

  const isStale = (token) => {
    fenced.newest = Math.max(fenced.newest, token);
    return token < fenced.newest;
  };

  return {
    read: ({ token = 0 }) => ({ plain: plain.value, fenced: isStale(token) ? null : fenced.value }),
    write({ base, token = 0 }) {
      plain.value = base.plain + 1;
      plain.accepted++;
      if (isStale(token) || base.fenced === null) fenced.refused++;
      else {
        fenced.value = base.fenced + 1;
        fenced.accepted++;
      }
    },
    /** Updates that a later write has overwritten are lost. */
    sum: () => ({
      writes: plain.accepted,
      lost: plain.accepted - plain.value,
      lostFenced: fenced.accepted - fenced.value,
      refusedWrites: fenced.refused,
    }),
  };
}
