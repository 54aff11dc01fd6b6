import { connectedSql } from '../support/claims.js';
import { describeBackend } from '../contract/lock-backend.js';
import { mariaDb, PATIENT } from './server.js';

describeBackend('a table of a MariaDB', async () => ({
  backend: await connectedSql({ mysql: (await mariaDb()).url, table: 'of_the_contract', ...PATIENT }),
}));
