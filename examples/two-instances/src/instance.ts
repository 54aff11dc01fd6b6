import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { Shop, ShopModule } from './shop.js';

// One instance of the application. `main.ts` starts two of them, and sends the same number of buyers to both at once.

const app = await NestFactory.createApplicationContext(ShopModule, { logger: ['warn', 'error'] });
const shop = app.get(Shop);

process.on('message', ({ sku, buyers, locked }: { sku: string; buyers: number; locked: boolean }) => {
  void serve();

  async function serve(): Promise<void> {
    const sell = () => (locked ? shop.sell(sku) : shop.sellWithoutLock(sku));
    const sold = await Promise.all(Array.from({ length: buyers }, sell));
    process.send!({ sold: sold.filter(Boolean).length });
  }
});
process.once('disconnect', () => void app.close());
process.send!({ ready: true });
