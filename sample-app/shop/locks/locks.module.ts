import { Module } from '@nestjs/common';
import { LockCountsService } from './lock-counts.service.js';
import { LocksController } from './locks.controller.js';

@Module({ controllers: [LocksController], providers: [LockCountsService] })
export class LocksModule {}
