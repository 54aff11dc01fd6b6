import 'reflect-metadata';
import { setTimeout as pause } from 'node:timers/promises';
import { Controller, Module, Param, Post } from '@nestjs/common';
import { APP_FILTER, NestFactory } from '@nestjs/core';
import { Locked, LockExceptionFilter, RedisLockModule } from 'nest-redis-lock';

@Controller('orders')
class OrdersController {
  /** A request that comes while the order is being paid gets 409 at once. */
  @Post(':id/pay')
  @Locked('order:{0}', { waitMs: 0 })
  async pay(@Param('id') id: string): Promise<string> {
    await pause(200); // slow work: a bank, a database
    return `${id} is paid`;
  }
}

const redis = process.env.REDIS_URL;
if (!redis) console.log('REDIS_URL is not set: locks are in memory, and work only within this process.');

@Module({
  imports: [RedisLockModule.forRoot(redis ? { redis } : { memory: true })],
  controllers: [OrdersController],
  providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }], // clients get a code, and nothing is logged
})
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['warn', 'error'] });
await app.listen(0, '127.0.0.1');
const url = await app.getUrl();

const pay = (id: string) => fetch(`${url}/orders/${id}/pay`, { method: 'POST' });
const [first, second, other] = await Promise.all([pay('17'), pay('17'), pay('18')]);
const statuses = [first.status, second.status].sort((a, b) => a - b);
console.log(
  `on ${process.versions.bun ? `Bun ${process.versions.bun}` : 'Node.js'}: order 17 twice at once: ${statuses.join(' and ')}; order 18: ${other.status}`,
);
await app.close();
if (statuses.join() !== '201,409' || other.status !== 201) process.exitCode = 1;
