import { Module } from '@nestjs/common';
import { WarehouseModule } from '../warehouse/warehouse.module.js';
import { DeliveriesController } from './deliveries.controller.js';
import { DeliveriesService } from './deliveries.service.js';

@Module({ imports: [WarehouseModule], controllers: [DeliveriesController], providers: [DeliveriesService] })
export class DeliveriesModule {}
