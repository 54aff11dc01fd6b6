import { describe, expect, it } from 'vitest';
import { LinkedList, type Linked } from '../lib/core/time/linked-list.js';
import { randomOf } from './support/random.js';

interface Item extends Linked<Item> {
  name: number;
}

const namesOf = (list: LinkedList<Item>) => list.filter(() => true).map(({ name }) => name);

describe('a linked list', () => {
  it('keeps the order of arrival, whoever leaves and comes back', () => {
    const random = randomOf(1);
    const list = new LinkedList<Item>();
    const items = Array.from({ length: 8 }, (_, name): Item => ({ name }));
    const expected: number[] = [];
    for (let step = 0; step < 1_000; step++) {
      const item = items[Math.floor(random() * items.length)]!;
      if (item.list) {
        list.remove(item);
        expected.splice(expected.indexOf(item.name), 1);
      } else {
        list.push(item);
        expected.push(item.name);
      }
      expect(namesOf(list)).toEqual(expected);
      expect(list.size).toBe(expected.length);
      expect(list.first?.name).toBe(expected[0]);
    }
  });

  it('leaves nothing behind in an item that is taken out', () => {
    const list = new LinkedList<Item>();
    const [first, middle, last] = [{ name: 1 }, { name: 2 }, { name: 3 }] as Item[];
    for (const item of [first!, middle!, last!]) list.push(item);
    list.remove(middle!);
    expect(middle).toEqual({ name: 2 });
    expect(first!.next).toBe(last);
    expect(last!.previous).toBe(first);
  });
});
