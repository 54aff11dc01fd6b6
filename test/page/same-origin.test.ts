import { expect, it } from 'vitest';
import { refuseForeign } from '../../lib/page/same-origin.js';

const allows = (headers: Record<string, string>) => {
  try {
    refuseForeign({ url: '/release', headers: { 'content-type': 'application/json; charset=utf-8', ...headers } });
    return true;
  } catch {
    return false;
  }
};

it.each<[string, Record<string, string>]>([
  ['a host with the default port', { origin: 'https://shop.example', host: 'shop.example:443' }],
  ['HTTP/2, which has no header Host', { origin: 'https://shop.example:8443', ':authority': 'shop.example:8443' }],
  ['a host in other letters', { origin: 'http://shop.example', host: 'Shop.Example' }],
])('a request of the page itself is not refused: %s', (_, headers) => {
  expect(allows(headers)).toBe(true);
});

it.each<[string, Record<string, string>]>([
  ['another port', { origin: 'https://shop.example:8443', host: 'shop.example' }],
  ['a host that cannot be read', { origin: 'https://shop.example', host: 'shop example' }],
  ['no host', { origin: 'https://shop.example' }],
  ['two values of Sec-Fetch-Site', { 'sec-fetch-site': 'same-origin, cross-site' }],
])('a request that may be of another page is refused: %s', (_, headers) => {
  expect(allows(headers)).toBe(false);
});
