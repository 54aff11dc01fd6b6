import 'reflect-metadata';
import { openShop } from '../shop/open-shop.js';

// One instance of the shop. It has a channel to the demonstration, and ends when the demonstration ends, even if that crashes.
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));

const app = await openShop({ port: 0, host: '127.0.0.1' });
process.send!({ url: await app.getUrl() });
