import 'reflect-metadata';
import { Logger } from '@nestjs/common';
import { openShop } from './open-shop.js';

const app = await openShop({ port: process.env.PORT ?? 3000, host: process.env.HOST ?? '127.0.0.1' });
new Logger('Shop').log(`The shop is open: ${await app.getUrl()}`);
