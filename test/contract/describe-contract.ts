import { afterAll, beforeAll, describe, it } from 'vitest';
import { type BackendUnderTest, describeBackend } from '../../lib/testing/index.js';

/**
 * The sentences of the contract that prove a promise of docs/guarantees.md: in the output of this repository they have
 * its id.
 */
const proofs = new Map<string, string>();
proves('a lock is free once its ttl has passed, and a late release leaves the new holder alone [G3]');
proves("an extension of another holder's lock fails [G4]");
proves('each grant has a larger fencing token: after a release, an expiry and a forced release [G13]');
proves('a kept lock becomes free once the requested time has passed, and not before [G330]');
proves(
  'an inspection shows which processes wait in the queue, and how many waiting calls each of them last reported [G934]',
);
proves('a late attempt and a late extension leave a kept lock as it is, even if its owner sends them [G331]');
proves('a transferred lock has the new owner and ttl, and its old owner cannot change it [G813]');
proves('a repeated transfer restarts the ttl and changes nothing else [G814]');
proves('a transfer for at least its ttl never shortens the remaining time, even if it is repeated [G997]');
proves('only one of many simultaneous transfers from the same owner succeeds [G815]');
proves('holders that share a lock have one token, which is larger than all earlier tokens [G870]');
proves('an exclusive lock, a shared lock and permits exclude each other [G871]');
proves('simultaneous attempts never get more permits than the limit [G872]');
proves('the smallest limit of all holders applies, and an attempt with a larger limit learns of it [G873]');
proves('the permits and the limit of an expired holder do not count [G874]');
proves('an extension of a shared lock changes only the end of its own holder [G875]');
proves('a holder that releases a shared lock leaves it to the others [G876]');
proves('a repeated attempt at a lock with permits counts as the same holder, with a new ttl [G877]');
proves('nobody overtakes an exclusive attempt that waits for a shared lock [G878]');
proves('the shared attempts at the head of the queue get the lock together [G879]');

function proves(title: string): void {
  proofs.set(title.replace(/ \[G\d+\]$/, ''), title);
}

/** Runs the public contract suite for a backend of this repository. */
export function describeContract(name: string, setUp: () => Promise<BackendUnderTest>): void {
  const missing = new Set(proofs.keys());
  describeBackend(name, setUp, {
    describe: (title, body) =>
      describe(title, () => {
        body();
        if (missing.size > 0) throw new Error(`The contract does not have: ${[...missing].join('; ')}`);
      }),
    it: (sentence, run) => {
      missing.delete(sentence);
      it(proofs.get(sentence) ?? sentence, run);
    },
    beforeAll,
    afterAll,
  });
}
