import { Controller, Get, Param } from '@nestjs/common';
import { LockService, type LockInfo } from 'nest-redis-lock';
import { LockCountsService, type LockCounts } from './lock-counts.service.js';

/** Shows the operators of the shop who holds which lock. */
@Controller('locks')
export class LocksController {
  constructor(
    private readonly locks: LockService,
    private readonly counts: LockCountsService,
  ) {}

  @Get()
  counted(): Record<string, LockCounts> {
    return this.counts.bySubject;
  }

  @Get(':key')
  async show(@Param('key') key: string): Promise<{ holding: LockInfo | null }> {
    return { holding: await this.locks.inspect(key) };
  }
}
