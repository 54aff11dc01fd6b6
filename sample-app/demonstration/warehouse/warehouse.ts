import { ValidationPipe, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { NetworkService } from './network.service.js';
import { ReportsService } from './reports.service.js';
import { ShelvesService } from './shelves.service.js';
import { WarehouseModule } from './warehouse.module.js';
import { WritesService } from './writes.service.js';

/** A running warehouse. The demonstration also uses its services directly, without the shop. */
export class Warehouse {
  readonly shelves: ShelvesService;
  readonly reports: ReportsService;
  readonly writes: WritesService;
  readonly network: NetworkService;

  private constructor(
    private readonly app: INestApplication,
    readonly url: string,
  ) {
    this.shelves = app.get(ShelvesService);
    this.reports = app.get(ReportsService);
    this.writes = app.get(WritesService);
    this.network = app.get(NetworkService);
  }

  static async open(): Promise<Warehouse> {
    const app = await NestFactory.create(WarehouseModule, { logger: ['fatal', 'error', 'warn'] });
    app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
    await app.listen(0, '127.0.0.1');
    return new Warehouse(app, await app.getUrl());
  }

  close(): Promise<void> {
    return this.app.close();
  }
}
