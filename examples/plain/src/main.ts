import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockContendedError } from 'nest-redis-lock';
import { AppModule } from './app.module.js';
import { OrdersService } from './orders.service.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
const orders = app.get(OrdersService);

// The second call for order 17 waits for the first. Order 18 waits for neither.
const payments = [orders.pay('17', 'Ada'), orders.pay('17', 'Bob'), orders.pay('18', 'Cyd')];

try {
  await orders.cancel('17');
} catch (error) {
  if (!(error instanceof LockContendedError)) throw error;
  console.log(`order 17 cannot be cancelled now: ${error.code}`);
}

await Promise.all(payments);
await orders.cancel('17');
await app.close(); // releases what is held, and closes the connections
