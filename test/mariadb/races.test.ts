import { it } from 'vitest';
import { race, RACE_TIMEOUT_MS } from './race.js';
import { mariaDb } from './server.js';

it(
  'Many connections that race for few locks in a server never have two holders, and each token is greater than all before [G776]',
  async () => race((await mariaDb()).url),
  RACE_TIMEOUT_MS,
);
