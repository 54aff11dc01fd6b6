import { Module } from '@nestjs/common';
import { WarehouseModule } from '../warehouse/warehouse.module.js';
import { NightsController } from './nights.controller.js';
import { StocktakingService } from './stocktaking.service.js';

@Module({ imports: [WarehouseModule], controllers: [NightsController], providers: [StocktakingService] })
export class StocktakingModule {}
