import { PGlite } from '@electric-sql/pglite';
import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import type { SqlQuery } from 'nest-redis-lock';

const TABLES = `
  CREATE TABLE stock (sku text PRIMARY KEY, boxes int NOT NULL, fence bigint NOT NULL DEFAULT 0);
  CREATE TABLE reports (id serial PRIMARY KEY, boxes jsonb NOT NULL, by int NOT NULL);
  CREATE TABLE fencing_tokens (key text PRIMARY KEY, fence bigint NOT NULL);
`;

/** The warehouse's PostgreSQL. It is a real one that runs in this process, so you need not install anything. */
@Injectable()
export class DatabaseService implements OnApplicationShutdown {
  /** The database takes some seconds to start; the instances of the shop start at the same time. */
  readonly #opening = open();

  constructor() {
    this.#opening.catch(() => {}); // the first query reports the error
  }

  async query<Row>(text: string, values: unknown[] = []): Promise<{ rows: Row[] }> {
    const database = await this.#opening;
    return database.query<Row>(text, values);
  }

  /** Runs the work in a transaction. */
  async transaction<Result>(work: (query: SqlQuery) => Promise<Result>): Promise<Result> {
    const database = await this.#opening;
    return database.transaction((transaction) => work((text, values) => transaction.query(text, values)));
  }

  async onApplicationShutdown(): Promise<void> {
    const database = await this.#opening;
    await database.close();
  }
}

async function open(): Promise<PGlite> {
  const database = await PGlite.create();
  await database.exec(TABLES);
  return database;
}
