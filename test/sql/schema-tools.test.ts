import 'reflect-metadata';
import { EntitySchema as MikroEntity, MikroORM } from '@mikro-orm/postgresql';
import { ddl } from 'nest-redis-lock/sql';
import { DataSource, EntitySchema } from 'typeorm';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { PostgresServer } from '../support/postgres-server.js';

let server: PostgresServer;

beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query(ddl('postgres'));
  return () => server.stop();
});

/** What MikroORM would do to the database for an entity of the application. */
async function updateOf(schemaGenerator: object): Promise<string> {
  const account = new MikroEntity({ name: 'Account', properties: { id: { type: 'string', primary: true } } });
  const orm = await MikroORM.init({ entities: [account], clientUrl: server.url, schemaGenerator });
  onTestFinished(() => orm.close());
  return orm.schema.getUpdateSchemaSQL();
}

describe('a tool that changes the schema', () => {
  it('MikroORM leaves the table of locks alone where it is one of skipTables, and drops it otherwise [G955]', async () => {
    expect(await updateOf({})).toContain('drop table if exists "resource_lock"');
    const update = await updateOf({ skipTables: ['resource_lock'] });
    expect(update).toContain('create table "account"');
    expect(update).not.toContain('resource_lock');
  });

  it('TypeORM synchronizes its entities, and leaves the table of locks alone [G956]', async () => {
    const account = new EntitySchema({ name: 'account', columns: { id: { type: 'text', primary: true } } });
    const dataSource = await new DataSource({ type: 'postgres', url: server.url, entities: [account] }).initialize();
    onTestFinished(() => dataSource.destroy());
    const { upQueries } = await dataSource.driver.createSchemaBuilder().log();
    expect(upQueries.map(({ query }) => query).join()).toMatch(/^CREATE TABLE "account"/);
    await dataSource.synchronize();
    expect(await server.query("SELECT to_regclass('resource_lock')::text AS name")).toEqual([
      { name: 'resource_lock' },
    ]);
  });
});
