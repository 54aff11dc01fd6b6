// The parts that the examples use of packages that this repository does not install, according to their documentation.

declare module '@nestjs/config' {
  export class ConfigModule {}
  export class ConfigService {
    getOrThrow<T>(key: string): T;
  }
}

declare module '@opentelemetry/sdk-node' {
  import type { MetricReader } from '@opentelemetry/sdk-metrics';
  export class NodeSDK {
    constructor(configuration: { serviceName?: string; metricReaders?: MetricReader[] });
    start(): void;
  }
}

declare module '@nestjs-cls/transactional' {
  export function Transactional(): MethodDecorator;
  export class TransactionHost {
    static getInstance(): TransactionHost;
    isTransactionActive(): boolean;
  }
}

declare module '@prisma/client' {
  export interface PrismaClient {
    $queryRawUnsafe<T>(text: string, ...values: unknown[]): Promise<T>;
    $transaction<T>(work: (tx: PrismaClient) => Promise<T>): Promise<T>;
    readonly line: { createMany(query: { data: { sku: string }[] }): Promise<{ count: number }> };
    readonly stock: {
      updateMany(query: {
        where: { sku: string; fence: { lte: bigint } };
        data: { boxes: number; fence: bigint };
      }): Promise<{ count: number }>;
    };
  }
}
