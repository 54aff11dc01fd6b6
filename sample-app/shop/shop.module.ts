import { Module } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { RedisLockModule } from 'nest-redis-lock';
import { SqlLockModule } from 'nest-redis-lock/sql';
import { ConfigModule } from './config/config.module.js';
import { ShopConfig } from './config/shop.config.js';
import { DeliveriesModule } from './deliveries/deliveries.module.js';
import { LocksModule } from './locks/locks.module.js';
import { ProductsModule } from './products/products.module.js';
import { StocktakingModule } from './stocktaking/stocktaking.module.js';

const CONFIG = { imports: [ConfigModule], inject: [ShopConfig] };

@Module({
  imports: [
    process.env.LOCKS === 'postgres'
      ? SqlLockModule.forRootAsync({ ...CONFIG, useFactory: (config: ShopConfig) => config.lockTable })
      : RedisLockModule.forRootAsync({ ...CONFIG, useFactory: (config: ShopConfig) => config.locks }),
    ScheduleModule.forRoot(),
    ProductsModule,
    DeliveriesModule,
    StocktakingModule,
    LocksModule,
  ],
})
export class ShopModule {}
