import { PGlite } from '@electric-sql/pglite';
import { Injectable, Module } from '@nestjs/common';
import { Locked, LockService } from 'nest-redis-lock';
import { guard, SqlLockModule } from 'nest-redis-lock/sql';

/** PostgreSQL in this process. With a server, `SqlLockModule.forRoot({ postgres: process.env.DATABASE_URL })` is enough. */
@Module({ providers: [{ provide: PGlite, useFactory: () => PGlite.create() }], exports: [PGlite] })
class DatabaseModule {}

@Injectable()
export class Shop {
  constructor(
    private readonly locks: LockService,
    private readonly database: PGlite,
  ) {}

  /** The bug: between the two statements another call may read the same number. @returns whether it sold a box */
  async sellWithoutLock(sku: string): Promise<boolean> {
    const left = await this.count(sku);
    if (left > 0) await this.database.query('UPDATE stock SET boxes = $2 WHERE sku = $1', [sku, left - 1]);
    return left > 0;
  }

  /** The lock is outside, the transaction inside: so the next holder of the lock sees what this one wrote. */
  @Locked('product:{0}')
  async sell(sku: string): Promise<boolean> {
    const left = await this.count(sku);
    if (left === 0) return false;
    await this.database.transaction(async (tx) => {
      await guard(this.locks.current(), tx); // keeps the lock until the commit, or fails if it was lost
      await tx.query('UPDATE stock SET boxes = $2 WHERE sku = $1', [sku, left - 1]);
    });
    return true;
  }

  async restock(sku: string, boxes: number): Promise<void> {
    await this.database.exec('CREATE TABLE IF NOT EXISTS stock (sku text PRIMARY KEY, boxes integer NOT NULL)');
    const statement = 'INSERT INTO stock VALUES ($1, $2) ON CONFLICT (sku) DO UPDATE SET boxes = $2';
    await this.database.query(statement, [sku, boxes]);
  }

  private async count(sku: string): Promise<number> {
    const { rows } = await this.database.query<{ boxes: number }>('SELECT boxes FROM stock WHERE sku = $1', [sku]);
    return rows[0]?.boxes ?? 0;
  }
}

@Module({
  imports: [
    DatabaseModule,
    SqlLockModule.forRootAsync({
      imports: [DatabaseModule],
      inject: [PGlite],
      useFactory: (postgres: PGlite) => ({ postgres, createTable: true }), // in production a migration creates the table
    }),
  ],
  providers: [Shop],
})
export class ShopModule {}
