import { AsyncLocalStorage } from 'node:async_hooks';

interface Transaction {
  isOpen: boolean;
}

const transactions = new AsyncLocalStorage<Transaction>();

/** The value of an application for `insideTransaction`. */
export function isInTransaction(): boolean {
  return transactions.getStore()?.isOpen ?? false;
}

/** Runs the work in a transaction, or in the one it is called in. */
export async function transaction<T>(work: () => Promise<T>): Promise<T> {
  if (isInTransaction()) return work();
  const open: Transaction = { isOpen: true };
  const result = await transactions.run(open, work);
  open.isOpen = false;
  return result;
}

/**
 * Like the decorators of nestjs-cls, typeorm-transactional and MikroORM: propagation `REQUIRED`, by the async context.
 */
export function Transactional() {
  return <Args extends unknown[], T>(
    _target: object,
    _name: string | symbol,
    descriptor: TypedPropertyDescriptor<(...args: Args) => Promise<T>>,
  ): void => {
    const method = descriptor.value!;
    descriptor.value = new Proxy(method, {
      apply: (target, self, args: Args) => transaction(() => Reflect.apply(target, self, args) as Promise<T>),
    });
    for (const key of Reflect.getOwnMetadataKeys(method)) {
      Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), descriptor.value);
    }
  };
}
