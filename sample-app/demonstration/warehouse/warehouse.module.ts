import { Module, type MiddlewareConsumer, type NestModule } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { DatabaseService } from './database.service.js';
import { NetworkMiddleware } from './network.middleware.js';
import { NetworkService } from './network.service.js';
import { ProductsController } from './products.controller.js';
import { ReportsController } from './reports.controller.js';
import { ReportsService } from './reports.service.js';
import { ShelvesService } from './shelves.service.js';
import { StaleTokenFilter } from './stale-token.filter.js';
import { WritesService } from './writes.service.js';

/** Another program, reached over the network. It knows nothing about locks; it only checks the fencing tokens of writes. */
@Module({
  controllers: [ProductsController, ReportsController],
  providers: [
    DatabaseService,
    ShelvesService,
    ReportsService,
    WritesService,
    NetworkService,
    { provide: APP_FILTER, useClass: StaleTokenFilter },
  ],
})
export class WarehouseModule implements NestModule {
  configure(consumer: MiddlewareConsumer): void {
    consumer.apply(NetworkMiddleware).forRoutes('{*path}');
  }
}
