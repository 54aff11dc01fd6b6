import { Logger, Module } from '@nestjs/common';
import { RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { OrdersService } from './orders.service.js';

@Module({
  imports: [
    RedisLockModule.forRootAsync({
      useFactory: (): RedisLockModuleOptions => {
        const redis = process.env.REDIS_URL;
        if (redis) return { redis };
        new Logger('Example').warn('REDIS_URL is not set: locks are in memory, and work only within this process.');
        return { memory: true };
      },
    }),
  ],
  providers: [OrdersService],
})
export class AppModule {}
