import { PGLiteSocketServer } from '@electric-sql/pglite-socket';
import { Pool } from 'pg';
import { candidatePort } from '../../servers/candidate-port.js';
import { preparedPGlite } from '../support/prepared-pglite.js';

/** A real PostgreSQL that several processes can reach: PGlite behind a socket, or the server of `DATABASE_URL`. */
export interface Database {
  readonly url: string;
  /** Each query of it may take a connection of its own. */
  readonly pool: Pool;
  stop(): Promise<void>;
}

/** PGlite, which comes from npm and runs everywhere; and a server with real parallel sessions, if there is one. */
export const DATABASES: [name: string, open: () => Promise<Database>][] = [['PGlite', openPGlite]];
const { DATABASE_URL } = process.env;
if (DATABASE_URL)
  DATABASES.push(['the PostgreSQL server of DATABASE_URL', async () => connect(DATABASE_URL, async () => {})]);

const CONNECTIONS = 20;

async function openPGlite(): Promise<Database> {
  const db = await preparedPGlite();
  for (;;) {
    const port = await candidatePort();
    const server = new PGLiteSocketServer({ db, host: '127.0.0.1', port, maxConnections: CONNECTIONS });
    try {
      await server.start();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') continue;
      throw error;
    }
    return connect(`postgres://postgres@127.0.0.1:${port}/postgres`, async () => {
      await server.stop();
      await db.close();
    });
  }
}

function connect(url: string, close: () => Promise<void>): Database {
  const pool = new Pool({ connectionString: url, max: 4 });
  pool.on('error', () => {}); // the error of an idle connection: the next query reports it
  return {
    url,
    pool,
    async stop() {
      await pool.end();
      await close();
    },
  };
}

let tables = 0;

/** A name that no other test uses, even on a server that outlives the run. */
export function tableName(): string {
  return `fenced_${process.pid}_${Date.now().toString(36)}_${++tables}`;
}
