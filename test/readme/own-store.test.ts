import { readFileSync } from 'node:fs';
import { Test } from '@nestjs/testing';
import { beforeEach, describe, expect, it } from 'vitest';
import { exampleWith, modulesOf } from './compile.js';

const PAGE = 'docs/own-store.md';
const page = readFileSync(new URL(`../../${PAGE}`, import.meta.url), 'utf8');
const prose = page.replaceAll(/^```.*?^```/gms, '');

// The store of the page passes the suite that the page shows.
let ran = 0;
describe('the suite of docs/own-store.md', async () => {
  beforeEach(() => void ran++);
  await import(/* @vite-ignore */ modulesOf(PAGE)[2]!);
});

it('the suite that docs/own-store.md shows has run, on the store that it shows', () => {
  expect(modulesOf(PAGE)).toHaveLength(3);
  expect(ran).toBe(86);
});

it('the application of docs/own-store.md runs, and a call that waits is woken', async () => {
  interface Sending {
    send(id: string): Promise<string>;
  }
  type Class<T = object> = new () => T;
  const { Invoices, InvoicesModule } = await exampleWith<{ Invoices: Class<Sending>; InvoicesModule: Class }>(
    PAGE,
    'class Invoices ',
  );
  const app = await Test.createTestingModule({ imports: [InvoicesModule] }).compile();
  const invoices = app.get<Sending>(Invoices);
  expect(await Promise.all(['7', '7'].map((id) => invoices.send(id)))).toEqual(['sent 7', 'sent 7']);
  await app.close();
});

it('docs/own-store.md can be read at once, and names no store that this package has', () => {
  expect(prose.split(/\s+/).length).toBeLessThanOrEqual(600);
  expect(page.replaceAll('nest-redis-lock', '')).not.toMatch(/redis/i);
});
