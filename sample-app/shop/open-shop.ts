import { ShutdownSignal, ValidationPipe, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ShopModule } from './shop.module.js';

/** @returns when it takes requests */
export async function openShop({ port, host }: { port: number | string; host: string }): Promise<INestApplication> {
  const app = await NestFactory.create(ShopModule, { logger: ['fatal', 'error', 'warn'] });
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  // On SIGTERM and Ctrl-C what runs is finished and its locks are released before the process ends. Without their names Nest
  // listens to more signals, some of which Deno refuses.
  app.enableShutdownHooks([ShutdownSignal.SIGTERM, ShutdownSignal.SIGINT]);
  await app.listen(port, host);
  return app;
}
