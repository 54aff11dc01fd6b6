import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { compileLibrary } from '../support/compiled-library.js';

const modules = fileURLToPath(new URL('../../node_modules', import.meta.url));

/** As an application writes it, but for the decorators, which JavaScript does not have. */
const APP = `
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Locked, LockService, RedisLockModule } from './lib/index.js';

class Orders {
  async pay(order) {
    return this.locks.isLocked('order:' + order);
  }
}
Reflect.defineMetadata('design:paramtypes', [String], Orders.prototype, 'pay');
const pay = Object.getOwnPropertyDescriptor(Orders.prototype, 'pay');
Object.defineProperty(Orders.prototype, 'pay', Locked('order:{0}')(Orders.prototype, 'pay', pay) ?? pay);

class AppModule {}
Module({ imports: [RedisLockModule.forRoot({ memory: true })], providers: [Orders] })(AppModule);

const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
const [locks, orders] = [app.get(LockService), app.get(Orders)];
orders.locks = locks;
const whileItRuns = await orders.pay('7');
const afterwards = await locks.isLocked('order:7');
await app.close();
const ioredis = await import('ioredis').then(() => 'installed', ({ code }) => code);
console.log(JSON.stringify({ ioredis, whileItRuns, afterwards }));
`;

it('an application without ioredis locks in memory', async () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'without-ioredis-')));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(compileLibrary(), join(folder, 'lib'), { recursive: true });
  for (const name of ['@nestjs/common', '@nestjs/core', 'reflect-metadata', 'rxjs']) {
    const link = join(folder, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(modules, name), link);
  }
  writeFileSync(join(folder, 'main.mjs'), APP);
  const { stdout } = await promisify(execFile)(process.execPath, ['main.mjs'], { cwd: folder });
  expect(JSON.parse(stdout)).toEqual({ ioredis: 'ERR_MODULE_NOT_FOUND', whileItRuns: true, afterwards: false });
});
