// A process of its own that counts in a database, under locks and in transactions, as it is asked to by messages: started
// by transactions.test.ts.
import 'reflect-metadata';
import { AsyncLocalStorage } from 'node:async_hooks';
import { Inject, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import pg from 'pg';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { redis, database, table, writes } = settings;
const { assertFenced, fencedUpdate, Locked, LockService, RedisLockModule } = await load('index.js');
const pool = new pg.Pool({ connectionString: database, max: 4 });
pool.on('error', () => {});
const transactions = new AsyncLocalStorage();

let reads = 0;
let isAtCommit = false;
let mayCommit = Promise.resolve();
let letCommit;

/**
 * Like the decorators of nestjs-cls, typeorm-transactional and MikroORM: the method joins a transaction, or begins one.
 */
function Transactional() {
  return (_target, _name, descriptor) => {
    const method = descriptor.value;
    descriptor.value = function (...args) {
      const work = () => method.apply(this, args);
      return transactions.getStore() ? work() : inTransaction(work);
    };
  };
}

/** Writes go to the database at once, or all at the commit, as in a unit of work. */
async function inTransaction(work) {
  const pending = [];
  const atOnce = writes === 'at once';
  let client = atOnce ? await begin() : undefined;
  try {
    const transaction = {
      query: (...statement) => (client ?? pool).query(...statement),
      write: (statement) => (atOnce ? statement(client) : void pending.push(statement)),
    };
    const result = await transactions.run(transaction, work);
    isAtCommit = true;
    await mayCommit;
    client ??= await begin();
    for (const statement of pending) await statement(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client?.query('ROLLBACK');
    throw error;
  } finally {
    client?.release();
  }
}

async function begin() {
  const client = await pool.connect();
  await client.query('BEGIN');
  return client;
}

class Counter {
  constructor(locks) {
    this.locks = locks;
  }

  transactionOutside(id) {
    return add(id);
  }

  lockOutside(id) {
    return add(id);
  }

  fenced(id) {
    return add(id, this.locks.current().fencingToken);
  }

  async claimed(id) {
    const { write } = transactions.getStore();
    await write(fenced({ id }, this.locks.current().fencingToken));
    await add(id);
  }
}

async function add(id, fence) {
  const { query, write } = transactions.getStore();
  const { rows } = await query(`SELECT total FROM ${table} WHERE id = $1`, [id]);
  reads++;
  const total = rows[0].total + 1;
  const plain = (client) => client.query(`UPDATE ${table} SET total = $1 WHERE id = $2`, [total, id]);
  await write(fence === undefined ? plain : fenced({ id }, fence, { total }));
}

function fenced(where, fence, set) {
  const statement = fencedUpdate({ table, where, set, fence });
  return async (client) => assertFenced((await client.query(statement.text, statement.values)).rows.length, statement);
}

/** The decorators in the order in which they would be above the method. */
function decorate(method, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(Counter.prototype, method);
  for (const decorator of decorators.reverse()) decorator(Counter.prototype, method, descriptor);
  Object.defineProperty(Counter.prototype, method, descriptor);
}

Inject(LockService)(Counter, undefined, 0);
decorate('transactionOutside', Transactional(), Locked('counter:{0}'));
decorate('lockOutside', Locked('counter:{0}'), Transactional());
decorate('fenced', Transactional(), Locked('counter:{0}'));
decorate('claimed', Transactional(), Locked('counter:{0}'));

class App {}
const insideTransaction = () => transactions.getStore() !== undefined;
Module({
  imports: [RedisLockModule.forRoot({ redis, waitMs: 120_000, commandTimeoutMs: 20_000, insideTransaction })],
  providers: [Counter],
})(App);
const warnings = [];
const logger = { log() {}, warn: (message) => warnings.push(message), error: (message) => warnings.push(message) };
const app = await NestFactory.createApplicationContext(App, { logger });
warnings.length = 0; // the entries of the start are about the server
const counter = app.get(Counter);

serve({
  add: (method, id) => counter[method](id),
  async addMany(method, id, count) {
    await Promise.all(Array.from({ length: count }, () => counter[method](id)));
  },
  forget() {
    letCommit?.();
    mayCommit = Promise.resolve();
    reads = 0;
    isAtCommit = false;
    warnings.length = 0;
  },
  /** From now on transactions stop before their commit. */
  holdCommits() {
    mayCommit = new Promise((resolve) => (letCommit = resolve));
  },
  letCommit: () => letCommit(),
  state: () => ({ reads, isAtCommit, warnings }),
});
