import type { AddressInfo, Server } from 'node:net';
import type { ModuleMetadata } from '@nestjs/common';
import { ClientProxyFactory, Transport, type ClientProxy } from '@nestjs/microservices';
import { onTestFinished } from 'vitest';
import { makeApp, type LockOptions, type TestApp } from './nest-app.js';

/** Like `makeApp`, together with a microservice and a client of it. */
export async function makeRpcApp(
  metadata: ModuleMetadata,
  lock?: LockOptions,
  inheritAppConfig = true,
): Promise<TestApp & { client: ClientProxy }> {
  let server: { unwrap(): unknown } | undefined;
  const test = await makeApp(metadata, lock, async (app) => {
    const options = { host: '127.0.0.1', port: 0 };
    server = app.connectMicroservice({ transport: Transport.TCP, options }, { inheritAppConfig });
    await app.startAllMicroservices();
  });
  const { port } = (server!.unwrap() as Server).address() as AddressInfo;
  const client = ClientProxyFactory.create({ transport: Transport.TCP, options: { host: '127.0.0.1', port } });
  onTestFinished(() => client.close());
  return { ...test, client };
}
