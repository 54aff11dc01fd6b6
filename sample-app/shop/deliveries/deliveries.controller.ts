import { Body, Controller, Post } from '@nestjs/common';
import { DeliveriesService, type Unloaded } from './deliveries.service.js';
import { Delivery } from './delivery.dto.js';

@Controller('deliveries')
export class DeliveriesController {
  constructor(private readonly deliveries: DeliveriesService) {}

  @Post()
  async unload(@Body() delivery: Delivery): Promise<Unloaded> {
    return this.deliveries.unload(delivery);
  }
}
