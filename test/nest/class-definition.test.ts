import { Locked, LockOptionsError } from 'nest-redis-lock';
import { of, type Observable } from 'rxjs';
import { expect, it } from 'vitest';

// What does not compile is written with casts here: JavaScript users meet it.
const loose = (key: string, options?: unknown) => Locked(key, options as object) as MethodDecorator & PropertyDecorator;

it('refuses a method whose type tells that it is synchronous', () => {
  const define = (): void => {
    class Sync {
      @loose('x')
      name(): string {
        return 'x';
      }
    }
    new Sync();
  };
  expect(define).toThrow('Sync.name is @Locked and must return a Promise or an Observable. Make it async.');
});

it('says how to import Observable where only its type was imported', () => {
  const define = (): void => {
    class Streaming {
      run(): Observable<number> {
        return of(1);
      }
    }
    // What the compiler writes for a type that is not there at run time.
    Reflect.defineMetadata('design:returntype', Function, Streaming.prototype, 'run');
    loose('x')(Streaming.prototype, 'run', Object.getOwnPropertyDescriptor(Streaming.prototype, 'run')!);
  };
  expect(define).toThrow('If it returns an Observable, import that as a value, not with "import type"');
});

it('refuses a static method, and leaves nothing behind', () => {
  const define = (): void => {
    class Static {
      @Locked('x')
      static async run(): Promise<void> {}
    }
    new Static();
  };
  expect(define).toThrow(
    '@Locked belongs on a method of a class that Nest makes: Static.run is static: there use LockService instead.',
  );
  expect(Reflect.getMetadataKeys(Function)).toEqual([]);
});

it('refuses a class', () => {
  const define = (): void => {
    @(loose('x') as unknown as ClassDecorator)
    class Whole {}
    new Whole();
  };
  expect(define).toThrow(
    '@Locked belongs on a method of a class that Nest makes: Whole is a class: put it on each of its methods.',
  );
});

it('refuses a getter', () => {
  const define = (): void => {
    class Getter {
      @loose('x')
      get run(): Promise<void> {
        return Promise.resolve();
      }
    }
    new Getter();
  };
  expect(define).toThrow('@Locked belongs on a method of a class that Nest makes: Getter.run is no method.');
});

it('refuses a property', () => {
  const define = (): void => {
    class Property {
      @loose('x')
      run = async (): Promise<void> => {};
    }
    new Property();
  };
  expect(define).toThrow('@Locked belongs on a method of a class that Nest makes: Property.run is no method.');
});

it('refuses two @Locked on one method', () => {
  const define = (): void => {
    class Twice {
      @Locked('a')
      @Locked('b')
      async run(): Promise<void> {}
    }
    new Twice();
  };
  expect(define).toThrow('Twice.run has two @Locked decorators: take one of the locks with LockService.withLock.');
});

it.each<[options: unknown, problem: string]>([
  [null, 'the options must be an object: got null.'],
  [5_000, 'the options must be an object: got 5000.'],
  [
    { ttl: 5 },
    'There is no option "ttl": expected ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost, holdMs, label, onContended, registration.',
  ],
  [{ ttlMs: 5 }, 'ttlMs must be a whole number of milliseconds from 20 to 86400000: got 5.'],
  [{ waitMs: '5' }, 'waitMs must be a whole number of milliseconds from 0 to 2147483647: got "5".'],
  [{ watchdog: 1 }, 'watchdog must be true or false: got 1.'],
  [{ reentrant: 'no' }, 'reentrant must be true or false: got "no".'],
  [{ onLost: 'skip' }, 'onLost must be "reject" or "ignore": got "skip".'],
  [{ onContended: 'ignore' }, 'onContended must be "throw", "skip" or a function: got "ignore".'],
  [{ registration: '' }, 'registration must be the name of a registration: got "".'],
  [{ registration: 5 }, 'registration must be the name of a registration: got 5.'],
  [{ signal: AbortSignal.abort() }, 'it takes no signal: use LockService.withLock.'],
])('refuses the options %o', (options, problem) => {
  const define = (): void => {
    class Wrong {
      @loose('x', options)
      async run(): Promise<void> {}
    }
    new Wrong();
  };
  expect(define).toThrow(LockOptionsError);
  expect(define).toThrow(`@Locked on Wrong.run: ${problem}`);
});
