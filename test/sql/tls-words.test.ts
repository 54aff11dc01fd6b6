import { LockOptionsError } from 'nest-redis-lock';
import type { MysqlSource, PostgresSource } from 'nest-redis-lock/sql';
import { describe, expect, it } from 'vitest';
import { openSqlLocks } from '../support/open-locks.js';

const SECRET = 'hunter2';

/**
 * Nothing connects.
 * @returns why the locks are refused; undefined if they are not
 */
async function refusalOf(source: { postgres: PostgresSource } | { mysql: MysqlSource }): Promise<string | undefined> {
  const opened = openSqlLocks({ ...source, createTable: false, lazyConnect: true, janitor: false });
  const error = await opened.then(
    () => undefined,
    (refusal: Error) => refusal,
  );
  expect(error?.stack ?? '').not.toContain(SECRET);
  if (error && !(error instanceof LockOptionsError)) throw error;
  return error?.message;
}

const postgres = (rest: string) => ({ postgres: `postgres://app:${SECRET}@host${rest}` });
const mysql = (rest: string) => ({ mysql: `mysql://app:${SECRET}@host${rest}` });

/** In the words of other drivers, and misspelt. */
const WORDS = [
  'ssl-mode=REQUIRED',
  'tls=true',
  'useSSL=true',
  'sslmode=REQUIRE',
  'sslmode=',
  'ssl=',
  'ssl=TRUE',
  'encrypt=true',
  'secure=1',
  'mode=required',
  'verifyServerCertificate=true',
];

describe('The URL of a database', () => {
  it.each([...WORDS, 'sslmode=allow', 'gssencmode=require', 'ssl=false'])(
    'of PostgreSQL with ?%s is refused, as pg does not understand it and would connect without TLS, or not at all [G985]',
    async (word) => {
      const message = await refusalOf(postgres(`/shop?schema=public&${word}`));
      expect(message).toContain(`${word.replace(/=.*/, '')} in the URL of the database is not understood`);
    },
  );

  it.each([...WORDS.filter((word) => !word.startsWith('ssl=')), 'sslmode=require', 'sslca=/a/file'])(
    'of MySQL with ?%s is refused, as it would connect without TLS [G988]',
    async (word) => {
      const message = await refusalOf(mysql(`/shop?connection_limit=1&${word}`));
      expect(message).toContain(`${word.replace(/=.*/, '')} in the URL of the database is not understood`);
    },
  );

  it('that contradicts itself or the options about TLS is refused if there would be no TLS', async () => {
    const connectionString = postgres('/shop?sslmode=disable').postgres;
    const uri = mysql('/shop?ssl=true').mysql;
    for (const source of [
      postgres('/shop?ssl=true&sslmode=disable'),
      postgres('/shop?channel_binding=require'),
      { postgres: { connectionString, ssl: { ca: 'a certificate' } } },
    ])
      expect(await refusalOf(source)).toContain('contradict each other about TLS');
    for (const source of [postgres('/shop?ssl=true&ssl=0'), mysql('/shop?ssl=false&ssl=true')])
      expect(await refusalOf(source)).toContain('ssl is in the URL of the database more than once');
    expect(await refusalOf({ mysql: { uri, ssl: false } })).toContain('asks for TLS, and its options forbid it');
  });

  it.each([
    postgres('/shop'),
    postgres('/shop?schema=public&connection_limit=5&pgbouncer=true&connect_timeout=3'),
    postgres('/shop?sslmode=disable&gssencmode=disable'),
    postgres('/shop?sslmode=verify-full&channel_binding=require'),
    postgres('/shop?sslmode=no-verify&uselibpqcompat=true'),
    postgres('/shop?ssl=true&sslnegotiation=direct'),
    ...['1', '0', 'no-verify'].map((ssl) => postgres(`/shop?ssl=${ssl}`)),
    postgres('/shop?client_encoding=utf8&options=-c%20work_mem%3D1MB'),
    mysql('/shop'),
    mysql('/shop?charset=utf8mb4&connectionLimit=5'),
    ...['true', 'false', 'Amazon%20RDS', '{"ca":"a?b"}'].map((ssl) => mysql(`/shop?ssl=${ssl}`)),
  ])('with what its driver understands is accepted: %j', async (source) => {
    expect(await refusalOf(source)).toBeUndefined();
  });

  it.each(['1', 'required', '"Amazon RDS"', '[]', `{"key":"${SECRET}"`, 'null'])(
    'of MySQL with ssl=%s is refused with the values that there are',
    async (ssl) => {
      const values = 'must be true, false, Amazon RDS, or an object with TLS options as JSON';
      expect(await refusalOf(mysql(`/shop?ssl=${encodeURIComponent(ssl)}`))).toContain(values);
    },
  );

  it.each([
    `://app:12#${SECRET}@host/shop?sslmode=require`,
    `://app:12/${SECRET}@host/shop?sslmode=require`,
    `://app:12?${SECRET}@host/shop?sslmode=require`,
    `://app:${SECRET}%zz@host/shop`,
    `://app:${SECRET}@host/shop%zz`,
    `://app:${SECRET}%E9@host/shop`,
    `://app:${SECRET}@host:5432,other:5432/shop`,
  ])('%s is refused at once, as drivers would parse another host or password from it [G986]', async (rest) => {
    for (const source of [{ postgres: `postgres${rest}` }, { mysql: `mysql${rest}` }])
      expect(await refusalOf(source)).toMatch(/cannot read the URL|The URL of the database cannot be read/);
  });

  it('with an @ in the password, an IPv6 address, or the path of a socket is accepted', async () => {
    for (const rest of ['://app:p@ss@host/shop', '://app@[::1]:1/shop'])
      for (const source of [{ postgres: `postgres${rest}` }, { mysql: `mysql${rest}` }])
        expect(await refusalOf(source)).toBeUndefined();
    expect(await refusalOf({ postgres: 'postgres://app:p@/shop?host=/var/run/postgresql' })).toBeUndefined();
    expect(await refusalOf({ postgres: 'postgres://%2Fvar%2Frun/shop' })).toBeUndefined();
  });
});

describe('The options of a database', () => {
  const host = { host: 'host', database: 'shop' };

  it.each([
    ['tls', { tls: true }],
    ['sslmode', { sslmode: 'require' }],
    ['extra.ssl', { extra: { ssl: { ca: 'a certificate' } } }],
    ['driverOptions.connection.ssl', { driverOptions: { connection: { ssl: true } } }],
  ])('with %s are refused, as the drivers ignore it and connect without TLS [G989]', async (name, options) => {
    for (const kind of ['postgres', 'mysql'] as const)
      expect(await refusalOf({ [kind]: { ...host, ...options } } as never)).toContain(
        `${name} in the options of the database is not understood`,
      );
  });

  it('with an ssl that the driver cannot take are refused at once', async () => {
    for (const ssl of [true, 'require', 1])
      expect(await refusalOf({ mysql: { ...host, ssl } })).toContain('ssl of mysql must be an object with TLS options');
    for (const ssl of ['TRUE', 'require'])
      expect(await refusalOf({ postgres: { ...host, ssl } })).toContain('ssl of postgres must be true, false');
  });

  it('with what the drivers understand, or with TLS that is off, are accepted', async () => {
    for (const ssl of [undefined, false, {}, { ca: 'a certificate', servername: 'name' }]) {
      expect(await refusalOf({ postgres: { ...host, ssl, tls: false } as never })).toBeUndefined();
      expect(await refusalOf({ mysql: { ...host, ssl, insecureAuth: true } as never })).toBeUndefined();
    }
    expect(await refusalOf({ postgres: { ...host, ssl: 'no-verify' } })).toBeUndefined();
    expect(await refusalOf({ mysql: { ...host, ssl: 'Amazon RDS' } })).toBeUndefined();
  });
});
