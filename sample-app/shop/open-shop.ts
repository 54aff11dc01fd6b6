import { ShutdownSignal, ValidationPipe, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ShopModule } from './shop.module.js';

/** Starts the shop. The promise resolves once it accepts requests. */
export async function openShop({ port, host }: { port: number | string; host: string }): Promise<INestApplication> {
  const app = await NestFactory.create(ShopModule, { logger: ['fatal', 'error', 'warn'] });
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  // On SIGTERM and Ctrl-C, running work finishes and its locks are released before the process ends. The signals are named because
  // Nest would otherwise listen to more of them, some of which Deno refuses.
  app.enableShutdownHooks([ShutdownSignal.SIGTERM, ShutdownSignal.SIGINT]);
  await app.listen(port, host);
  return app;
}
