import { expect, it, vi } from 'vitest';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';
import { clusterSlot, tagOfSlot } from '../support/cluster-slots.js';
import { randomOf } from '../support/random.js';
import { redisServer } from '../support/stage.js';

const SLOTS = 16_384;

it('the slot of a key is what CLUSTER KEYSLOT says', async () => {
  const random = randomOf(20_261_103);
  const below = (limit: number) => Math.floor(random() * limit);
  const alphabet = ['{', '}', '{', '}', 'a', 'b', ':', '%', ' ', 'é', '鍵', '🔑', '\0', '\r\n'];
  const keys = Array.from({ length: 1_000 }, () =>
    Array.from({ length: below(12) }, () => alphabet[below(alphabet.length)]).join(''),
  );
  keys.push('', '{}', '{}a', 'a{}{b}', '{{a}}', 'lock:{order:7}', 'lock:{order:7}:queue', 'x'.repeat(5_000));
  keys.push('lock:{Bestellung für Jörg}', 'lock:{鍵}:queue', 'ключ:{a}', '{a}:🔑', 'é'.repeat(5_000), '\ud83d lone');
  const server = await redisServer('--cluster-enabled', 'yes');
  const slots = await Promise.all(keys.map((key) => server.command('CLUSTER', 'KEYSLOT', key)));
  expect(keys.map(clusterSlot)).toEqual(slots);
});

it('each slot has a tag, the same in each process: the first number of that slot', async () => {
  const first: string[] = [];
  for (let number = 0, found = 0; found < SLOTS; number++) {
    const slot = clusterSlot(`lock:fence{${number.toString(36)}}`);
    if (first[slot] === undefined) found++;
    first[slot] ??= number.toString(36);
  }
  vi.resetModules();
  const inAnother = await import('../../lib/stores/redis/client/cluster-slot.js');
  const backwards = first.map((_, index) => SLOTS - 1 - index);
  expect(backwards.map(inAnother.tagOfSlot).reverse()).toEqual(first);
  expect(first.map((_, slot) => tagOfSlot(slot))).toEqual(first);
  // As in docs/protocol.md: another rule would mean another counter.
  expect([clusterSlot('lock:{order:7}'), tagOfSlot(clusterSlot('lock:{order:7}'))]).toEqual([6_368, '46q']);
});

it.each([
  ['no prefix', ''],
  ['a prefix', 'app:'],
  ['a prefix with a tag', '{app}:'],
])('a lock, its queue and its counter are in one slot with %s of the client', (_name, prefix) => {
  const keys = new LockKeys('lock', 'per-slot', prefix);
  for (const key of ['a', 'order:7', 'Bestellung für Jörg', '鍵', '{', 'a{b}c', 'a}b']) {
    const slot = clusterSlot(prefix + keys.lock(key));
    const others = [keys.queue(key), keys.fence(key), keys.admission(key)];
    expect(others.map((other) => clusterSlot(prefix + other))).toEqual([slot, slot, slot]);
  }
});
