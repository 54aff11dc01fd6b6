import { afterAll, beforeAll, describe, it } from 'vitest';
import { type BackendUnderTest, describeBackend } from '../../lib/testing/index.js';

/** The sentences of the contract that prove a promise of docs/guarantees.md: in our own output they have its id. */
const proofs = new Map<string, string>();
proves('a lock is free when its ttl is over, and a late release leaves the new holder alone [G3]');
proves("an extension of another holder's lock fails [G4]");
proves('each grant has a larger fencing token: after a release, an expiry and a forced release [G13]');
proves('a lock that is kept ends by itself when that time is over, not before [G330]');
proves(
  'an inspection shows who waits in the queue, and how many calls of its process wait, as it was told last [G934]',
);
proves('an attempt and an extension that come late leave a kept lock as it is, also those of its owner [G331]');
proves('a lock that is transferred has the new owner and ttl, and nothing that the old one does changes it [G813]');
proves('a transfer that is sent again changes nothing but the ttl, which starts anew [G814]');
proves('a transfer for at least its ttl shortens no time that is left, also when it is sent again [G997]');
proves('one of many simultaneous transfers from the same owner succeeds [G815]');
proves('who shares a lock has the token of those who hold it, and a larger one than all before them [G870]');
proves('an exclusive lock, a shared one and permits exclude each other [G871]');
proves('no more permits are granted than fit, however many ask at once [G872]');
proves('the smallest limit of all holders counts, and who names a larger one learns of it [G873]');
proves('the permits and the limit of a holder whose time is over do not count [G874]');
proves('an extension of a lock that is shared changes the end of its own holder alone [G875]');
proves('a holder of a lock that is shared who releases it leaves it to the others [G876]');
proves('an attempt at a lock of permits that is sent again is the same holder, with a new ttl [G877]');
proves('nobody overtakes an exclusive attempt that waits for those who share the lock [G878]');
proves('those who share a lock and are first in the queue come in together [G879]');

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
