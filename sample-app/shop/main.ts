import 'reflect-metadata';
import { openShop } from './open-shop.js';

const app = await openShop({ port: process.env.PORT ?? 3000, host: process.env.HOST ?? '127.0.0.1' });
console.log(`The shop is open: ${await app.getUrl()}`);
