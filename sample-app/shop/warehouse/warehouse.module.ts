import { Module } from '@nestjs/common';
import { ConfigModule } from '../config/config.module.js';
import { WarehouseClient } from './warehouse.client.js';

@Module({ imports: [ConfigModule], providers: [WarehouseClient], exports: [WarehouseClient] })
export class WarehouseModule {}
