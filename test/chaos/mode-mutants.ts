import type { Script } from './library.js';
import { replacePart, type Library, type Mutant } from './mutant.js';

/** Broken in one way each: locks that several callers hold, or hold one after the other, or for a limited time. */
export const MODE_MUTANTS: Readonly<Record<string, Mutant>> = {
  'expired-holders-count': {
    what: 'a holder among others still counts when its time has passed',
    inject(library) {
      const { EXTEND_TOGETHER } = library;
      const scripts = [...servingScripts(library).filter(({ name }) => name !== 'release'), EXTEND_TOGETHER];
      replacePart(scripts, 'local is_live = tonumber(finish) >= now', 'local is_live = true');
    },
  },
  'served-past-the-head': {
    what: 'a waiter that fits is served before the head of the queue, which does not fit',
    inject(library) {
      const parsed = "if (kind == 's' or kind == 'p') and string.find(ticket, '%s') then kind = nil end";
      const fits = "(kind == 's' or holders.used + weight <= math.min(most, holders.smallest))";
      const passed = `${parsed} if kind and holders and not (kind == holders.kind and ${fits}) then kind = nil end`;
      replacePart(servingScripts(library), parsed, passed);
    },
  },
  'limit-ignored': {
    what: 'permits are granted beyond their limit',
    inject(library) {
      replacePart(servingScripts(library), 'holders.used + weight <= math.min(most, holders.smallest)', 'true');
    },
  },
  'reader-joins-writer': {
    what: 'a reader shares a lock that another one holds alone',
    inject({ ACQUIRE_TOGETHER, RELEASE_AND_ACQUIRE_TOGETHER }) {
      const foreign = 'local is_foreign = value and not is_together';
      replacePart(
        [ACQUIRE_TOGETHER, RELEASE_AND_ACQUIRE_TOGETHER],
        foreign,
        `${foreign} and not (kind == 's' and owner ~= '')`,
      );
    },
  },
  'downgrade-with-a-gap': {
    what: 'a lock is downgraded by a release, and an attempt to share it',
    inject({ RedisNode }) {
      const { transfer } = RedisNode.prototype;
      RedisNode.prototype.transfer = function (request) {
        const { key, from, to: owner, ttlMs, hold } = request;
        if (hold?.mode !== 'shared') return transfer.call(this, request);
        return new Promise((resolve) => {
          const ask = () =>
            this.acquire({ key, hold, owner, ttlMs }, (outcome) => {
              if (outcome.status === 'contended') setTimeout(ask, 5);
              else if (outcome.status === 'unavailable') resolve({ ...outcome, mayHaveRun: true });
              else resolve({ ...outcome, status: 'transferred' });
            });
          this.release({ key, owner: from }, {}, ask);
        });
      };
    },
  },
  'stale-places-served': {
    what: 'a process gives no lock back that was handed over to a place which it has left',
    inject({ RedisNode }) {
      RedisNode.prototype.decline = () => {};
    },
  },
  'adopted-with-the-old-token': {
    what: 'an adoption mints no token',
    inject({ RedisNode }) {
      const { transfer } = RedisNode.prototype;
      RedisNode.prototype.transfer = function (request) {
        return transfer.call(this, request.hold ? request : { ...request, mints: false });
      };
    },
  },
  'detached-under-the-old-owner': {
    what: 'a detached lock stays under the owner value of its sender, and the parcel has whatever its process holds',
    inject({ TRANSFER }) {
      const isSender = "string.match(from, '^detached/([^/]+/%d+/)') == (string.match(owner, '^[^/]+/%d+/') or '')";
      replacePart([TRANSFER], 'if owner ~= from then', `if owner ~= from and not (${isSender}) then`);
      replacePart([TRANSFER], 'to .. latest', "(mints == '1' and to or from) .. latest");
    },
  },
  'held-beyond-the-limit': {
    what: 'a lock is held, and extended, when its maxHoldMs is over',
    inject({ Demands: { prototype } }) {
      prototype.endBy = () => {};
    },
  },
};

/** All scripts that serve the queue of a lock. */
function servingScripts(library: Library): Script[] {
  return [
    library.ACQUIRE_TOGETHER,
    library.DOWNGRADE,
    library.FORCE_RELEASE,
    library.RELEASE_AND_TURN,
    library.RELEASE_AND_ACQUIRE_TOGETHER,
    library.RELEASE,
    library.TURN,
    library.WITHDRAW,
  ];
}
