import { expect, it } from 'vitest';
import { isCounter, ownerIn, shardOf } from './stored.js';

it.each(['lock:fence', 'lock:fence:0', 'lock:fence:4095', 'lock:fence{3k}', 'app:lock:fence', shardOf('key')])(
  'a key named %s is a counter',
  (name) => expect(isCounter(name)).toBe(true),
);

it.each([
  'lock:{fence}',
  'lock:{key}:fence',
  'lock:{a}:fence:1',
  'lock:{lock:fence}',
  'lock:{x}:fence{y}',
  'lock:admission',
])('a key named %s is no counter', (name) => expect(isCounter(name)).toBe(false));

it.each([
  ['host/1/random/2@1795336344243000', 'host/1/random/2'],
  ['host/1/random/2@1795336344243000+', 'host/1/random/2'],
  ['a person', 'a person'],
  ['me@home', 'me@home'],
  [null, null],
])('the value %s has the owner %s', (value, owner) => expect(ownerIn(value)).toBe(owner));
