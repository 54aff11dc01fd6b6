// A process of its own that counts in a row of a database, under locks and in transactions, as it is asked to by messages:
// started by transactions.test.ts.
import 'reflect-metadata';
import { AsyncLocalStorage } from 'node:async_hooks';
import { Inject, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import pg from 'pg';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { redis, database } = settings;
const { assertFenced, fencedUpdate, Locked, LockService, RedisLockModule } = await load('index.js');
const pool = new pg.Pool({ connectionString: database, max: 4 });
pool.on('error', () => {});
const transactions = new AsyncLocalStorage();

let reads = 0;
let isAtCommit = false;
let mayCommit = Promise.resolve();
let letCommit;

/**
 * Like the decorators of nestjs-cls, typeorm-transactional and MikroORM. The writes of the method are sent at the
 * commit, as in a unit of work.
 */
function Transactional() {
  return (_target, _name, descriptor) => {
    const method = descriptor.value;
    descriptor.value = async function () {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        const transaction = { client, pending: [] };
        await transactions.run(transaction, () => method.apply(this));
        isAtCommit = true;
        await mayCommit;
        for (const send of transaction.pending) await send();
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    };
  };
}

class Counter {
  constructor(locks) {
    this.locks = locks;
  }

  transactionOutside() {
    return add();
  }

  lockOutside() {
    return add();
  }

  fenced() {
    return add(this.locks.current().fencingToken);
  }
}

async function add(fence) {
  const { client, pending } = transactions.getStore();
  const { rows } = await client.query("SELECT total FROM stock WHERE id = 'tea'");
  reads++;
  const total = rows[0].total + 1;
  const plain = () => client.query('UPDATE stock SET total = $1', [total]);
  pending.push(fence === undefined ? plain : () => write(client, { fence, set: { total } }));
}

async function write(client, row) {
  const statement = fencedUpdate({ table: 'stock', where: { id: 'tea' }, ...row });
  const { rows } = await client.query(statement.text, statement.values);
  assertFenced(rows.length, statement);
}

/** The decorators in the order in which they would be above the method. */
function decorate(method, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(Counter.prototype, method);
  for (const decorator of decorators.reverse()) decorator(Counter.prototype, method, descriptor);
  Object.defineProperty(Counter.prototype, method, descriptor);
}

Inject(LockService)(Counter, undefined, 0);
decorate('transactionOutside', Transactional(), Locked('counter:tea'));
decorate('lockOutside', Locked('counter:tea'), Transactional());
decorate('fenced', Transactional(), Locked('counter:tea'));

class App {}
const insideTransaction = () => transactions.getStore() !== undefined;
Module({
  imports: [RedisLockModule.forRoot({ redis, waitMs: 120_000, commandTimeoutMs: 20_000, insideTransaction })],
  providers: [Counter],
})(App);
const warnings = [];
const logger = { log() {}, warn: (message) => warnings.push(message), error: (message) => warnings.push(message) };
const app = await NestFactory.createApplicationContext(App, { logger });
const [counter, locks] = [app.get(Counter), app.get(LockService)];
let held;

serve({
  add: (method) => counter[method](),
  async acquire(ttlMs) {
    held = await locks.acquire('tea', { ttlMs });
    return held.fencingToken;
  },
  release: () => held.release(),
  /** Writes with the token of its lock, whether it still holds the lock or not: the database has to check that. */
  write: (total) => write(pool, { fence: held.fencingToken, set: { total } }),
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
