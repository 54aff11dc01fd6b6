import { fencingHeaders, readFencingHeader } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';

const TOKEN = 1_790_000_000_000_000;

describe('the Fencing-Token header', () => {
  it.each(['order:17', 'a=1, b=2', '100 %', '%3A', 'ключ:🔑', ' ', '"', 'line\nbreak', 'a\0b', '='])(
    'carries the key %j as it is, in a header that fetch takes',
    (key) => {
      const headers = new Headers(fencingHeaders({ key, fencingToken: TOKEN }));
      expect(readFencingHeader(headers.get('fencing-token')!)).toEqual({ key, fencingToken: TOKEN });
    },
  );
});
