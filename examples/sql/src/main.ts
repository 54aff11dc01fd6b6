import 'reflect-metadata';
import { PGlite } from '@electric-sql/pglite';
import { NestFactory } from '@nestjs/core';
import { Shop, ShopModule } from './shop.js';

const BOXES = 5;
const BUYERS = 20;

const app = await NestFactory.createApplicationContext(ShopModule, { logger: ['warn', 'error'] });
const shop = app.get(Shop);

await rush('without a lock', () => shop.sellWithoutLock('tea'));
const sold = await rush('with @Locked', () => shop.sell('tea'));

const { rows } = await app.get(PGlite).query('SELECT resource_lock_key FROM resource_lock');
console.log('keys in the table of the locks:', rows);
await app.close();
await app.get(PGlite).close();
if (sold !== BOXES) process.exitCode = 1;

/** Lets all buyers come at once. @returns how many of them got a box */
async function rush(how: string, sell: () => Promise<boolean>): Promise<number> {
  await shop.restock('tea', BOXES);
  const sales = await Promise.all(Array.from({ length: BUYERS }, sell));
  const sold = sales.filter(Boolean).length;
  console.log(`${how}: ${sold} boxes of ${BOXES} were sold`);
  return sold;
}
