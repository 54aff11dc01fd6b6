import { connectedSql } from '../support/claims.js';
import { describeContract } from '../contract/describe-contract.js';
import { mariaDb, PATIENT } from './server.js';

describeContract('a table of a MariaDB', async () => ({
  backend: await connectedSql({ mysql: (await mariaDb()).url, table: 'of_the_contract', ...PATIENT }),
}));
