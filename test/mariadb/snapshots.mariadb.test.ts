import { it } from 'vitest';
import { race, RACE_TIMEOUT_MS } from './race.js';
import { ownMariaDb } from './server.js';

it(
  'Many connections that race for few locks in a server whose locking reads refuse what was changed since they began, as from MariaDB 11.6.2 on, never have two holders, and each token is greater than all before [G1140]',
  async () => race((await ownMariaDb({ 'innodb-snapshot-isolation': 'ON' })).url),
  RACE_TIMEOUT_MS,
);
