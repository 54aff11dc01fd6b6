// Checked by `npm run types`: wrong code must not compile, correct code must. Nothing here runs.
import type { PGlite } from '@electric-sql/pglite';
import { SqlLockModule } from 'nest-redis-lock/sql';
import type { ClientConfig, Pool, PoolConfig } from 'pg';

export const right = (pool: Pool, ofPool: PoolConfig, ofClient: ClientConfig, pglite: PGlite) => [
  SqlLockModule.forRoot({ postgres: 'postgres://localhost/shop' }),
  SqlLockModule.forRoot({ postgres: { host: 'localhost', password: async () => 'secret', ssl: true } }),
  SqlLockModule.forRoot({ postgres: ofPool }),
  SqlLockModule.forRoot({ postgres: ofClient }),
  SqlLockModule.forRoot({ postgres: pool }),
  SqlLockModule.forRoot({ postgres: pglite }),
];

export const wrong = () => [
  // @ts-expect-error -- no source
  SqlLockModule.forRoot({ postgres: 5 }),
  // @ts-expect-error -- there is no source
  SqlLockModule.forRoot({ ttlMs: 5_000 }),
  // @ts-expect-error -- a misspelt option
  SqlLockModule.forRoot({ postgres: 'postgres://localhost/shop', ttl: 5_000 }),
  // @ts-expect-error -- an option of Redis
  SqlLockModule.forRoot({ postgres: 'postgres://localhost/shop', keyPrefix: 'shop' }),
];
