import { Controller, HttpCode, Post } from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { NIGHTLY_JOB } from './stocktaking.service.js';

/** Starts the nightly job at once, so that nobody has to wait until three o'clock. */
@Controller('nights')
export class NightsController {
  constructor(private readonly scheduler: SchedulerRegistry) {}

  @Post()
  @HttpCode(202)
  async fall(): Promise<void> {
    await this.scheduler.getCronJob(NIGHTLY_JOB).fireOnTick();
  }
}
