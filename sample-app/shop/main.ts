import 'reflect-metadata';
import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ShopModule } from './shop.module.js';

// The demonstration starts the instances and has a channel to each: an instance ends with it, however it ends.
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));

const app = await NestFactory.create(ShopModule, { logger: ['fatal', 'error', 'warn'] });
app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
// On SIGTERM and Ctrl-C what runs is finished and its locks are released before the process ends.
app.enableShutdownHooks();
await app.listen(process.env.PORT ?? 0, '127.0.0.1');
process.send?.({ url: await app.getUrl() });
