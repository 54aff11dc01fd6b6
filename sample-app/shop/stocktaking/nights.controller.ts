import { Controller, HttpCode, Post } from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { NIGHTLY_JOB } from './stocktaking.service.js';

/** Makes it night at once, for those who do not want to wait until three. */
@Controller('nights')
export class NightsController {
  constructor(private readonly scheduler: SchedulerRegistry) {}

  @Post()
  @HttpCode(202)
  async fall(): Promise<void> {
    await this.scheduler.getCronJob(NIGHTLY_JOB).fireOnTick();
  }
}
