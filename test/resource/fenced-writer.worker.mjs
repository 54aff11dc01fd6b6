// A separate process that writes to a database under locks; sql.test.ts starts it, and sends it messages.
import pg from 'pg';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { redis, database } = settings;
const { openLocks } = await load('compose/open-locks.js');
const { assertFenced, fencedUpdate } = await load('fencing/fenced-statement.js');
const { service: locks } = await openLocks({ redis, commandTimeoutMs: 20_000 });
const pool = new pg.Pool({ connectionString: database, max: 4 });
pool.on('error', () => {});
let held;

serve({
  async acquire(key, options) {
    held = await locks.acquire(key, options);
    return held.fencingToken;
  },
  async readBoxes() {
    const { rows } = await pool.query("SELECT boxes FROM stock WHERE sku = 'tea'");
    return rows[0].boxes;
  },
  /** Writes with the token of its lock, whether it still holds the lock or not: the database has to check that. */
  async writeBoxes(boxes) {
    const statement = fencedUpdate({ table: 'stock', set: { boxes }, where: { sku: 'tea' }, fence: held.fencingToken });
    const { rows } = await pool.query(statement.text, statement.values);
    try {
      assertFenced(rows.length, statement);
      return true;
    } catch (error) {
      if (error.code === 'LOCK_STALE_TOKEN') return false;
      throw error;
    }
  },
});
