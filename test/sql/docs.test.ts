import 'reflect-metadata';
import { readFileSync } from 'node:fs';
import { EntitySchema as MikroEntity, MikroORM } from '@mikro-orm/postgresql';
import knex, { type Knex } from 'knex';
import { getLockServiceToken, LockService } from 'nest-redis-lock';
import { ddl } from 'nest-redis-lock/sql';
import { LockBench } from 'nest-redis-lock/testing';
import { DataSource, EntitySchema, type MigrationInterface } from 'typeorm';
import { expect, it, onTestFinished } from 'vitest';
import { DIALECTS, SQL_CHECKS } from '../../lib/stores/sql/options.js';
import { exampleWith } from '../readme/compile.js';
import { startModules } from '../support/nest-app.js';
import { ownPostgres, postgresOfFile } from './stage.js';

it('the tables of docs/sql.md name every option of the store', () => {
  const page = readFileSync(new URL('../../docs/sql.md', import.meta.url), 'utf8');
  const named = [...page.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name);
  expect(named).toEqual(expect.arrayContaining([...DIALECTS, ...Object.keys(SQL_CHECKS)]));
});

type Class<T = object> = new (...args: never[]) => T;

it('the first example of docs/sql.md runs on a server whose table the migration on that page creates, and so does the one with a Pool', async () => {
  const server = await ownPostgres();
  process.env.DATABASE_URL = server.url;
  onTestFinished(() => void delete process.env.DATABASE_URL);
  const { up } = await exampleWith<{ up(query: (text: string) => Promise<unknown>): Promise<unknown> }>(
    'docs/sql.md',
    'export const up',
  );
  await up((text) => server.query(text));
  const { Invoices, InvoicesModule } = await exampleWith<{
    Invoices: Class<{ send(id: string): Promise<string> }>;
    InvoicesModule: Class;
  }>('docs/sql.md', 'class Invoices ');
  const app = await startModules({ imports: [InvoicesModule] });
  expect(await app.get(Invoices).send('7')).toBe('sent 7');

  const { LocksModule } = await exampleWith<{ LocksModule: Class }>('docs/sql.md', 'class LocksModule');
  await server.query('CREATE SCHEMA shop');
  await server.query('CREATE TABLE shop.resource_lock (LIKE public.resource_lock INCLUDING ALL)');
  const locks = (await startModules({ imports: [LocksModule] })).get(LockService);
  expect(await locks.withLock('k', () => 'ran')).toBe('ran');
});

it('the example of docs/sql.md for the move from Redis takes both locks', async () => {
  const { BothLocks } = await exampleWith<{
    BothLocks: Class<{ withLock<T>(key: string, work: () => Promise<T>): Promise<T> }>;
  }>('docs/sql.md', 'class BothLocks');
  const benches = [new LockBench(), new LockBench({ name: 'sql' })];
  const [redis, sql] = benches.map(({ locks }) => locks);
  const testing = await startModules({
    providers: [
      BothLocks,
      { provide: LockService, useValue: redis },
      { provide: getLockServiceToken('sql'), useValue: sql },
    ],
  });
  const held = await testing.get(BothLocks).withLock('k', async () => benches.map(({ heldKeys }) => heldKeys));
  expect(held).toEqual([['k'], ['k']]);
});

it('the migrations of docs/migrations-by-tool.md for TypeORM and Knex create the table, and drop it', async () => {
  const server = await ownPostgres();
  const found = async () => (await server.query("SELECT to_regclass('resource_lock')::text AS name"))[0]!.name;
  const page = 'docs/migrations-by-tool.md';
  const classes = await exampleWith<Record<string, Class<MigrationInterface>>>(page, 'implements MigrationInterface');
  const dataSource = await new DataSource({
    type: 'postgres',
    url: server.url,
    migrations: Object.values(classes),
  }).initialize();
  onTestFinished(() => dataSource.destroy());
  await dataSource.runMigrations();
  expect(await found()).toBe('resource_lock');
  await dataSource.undoLastMigration();
  expect(await found()).toBeNull();

  type Step = (client: Knex) => Promise<unknown>;
  const { up, down } = await exampleWith<{ up: Step; down: Step }>(page, 'knex.schema.raw');
  const client = knex({ client: 'pg', connection: server.url });
  onTestFinished(() => client.destroy());
  await up(client);
  expect(await found()).toBe('resource_lock');
  await down(client);
  expect(await found()).toBeNull();
});

/** With the table of locks, and without what tools that change the schema create. */
const managed = await postgresOfFile();
await managed.query(ddl('postgres'));

/** The changes that MikroORM would make to the database for an entity of the application. */
async function updateOf(schemaGenerator: object): Promise<string> {
  const account = new MikroEntity({ name: 'Account', properties: { id: { type: 'string', primary: true } } });
  const orm = await MikroORM.init({ entities: [account], clientUrl: managed.url, schemaGenerator });
  onTestFinished(() => orm.close());
  return orm.schema.getUpdateSchemaSQL();
}

it('MikroORM leaves the table of locks alone where it is one of skipTables, and drops it otherwise [G955]', async () => {
  expect(await updateOf({})).toContain('drop table if exists "resource_lock"');
  const update = await updateOf({ skipTables: ['resource_lock'] });
  expect(update).toContain('create table "account"');
  expect(update).not.toContain('resource_lock');
});

it('TypeORM synchronizes its entities, and leaves the table of locks alone [G956]', async () => {
  const account = new EntitySchema({ name: 'account', columns: { id: { type: 'text', primary: true } } });
  const dataSource = await new DataSource({ type: 'postgres', url: managed.url, entities: [account] }).initialize();
  onTestFinished(() => dataSource.destroy());
  const { upQueries } = await dataSource.driver.createSchemaBuilder().log();
  expect(upQueries.map(({ query }) => query).join()).toMatch(/^CREATE TABLE "account"/);
  await dataSource.synchronize();
  expect(await managed.query("SELECT to_regclass('resource_lock')::text AS name")).toEqual([{ name: 'resource_lock' }]);
});
