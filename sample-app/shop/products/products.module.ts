import { Module } from '@nestjs/common';
import { WarehouseModule } from '../warehouse/warehouse.module.js';
import { ProductsController } from './products.controller.js';
import { ProductsService } from './products.service.js';

@Module({ imports: [WarehouseModule], controllers: [ProductsController], providers: [ProductsService] })
export class ProductsModule {}
