import { connectAll } from './clients.mjs';
import { library } from './library.mjs';
import { majority } from './raw-quorum.mjs';

const PREFIX = 'lock';

/**
 * The raw client, or the raw quorum, with the scripts of this library instead of `SET` and its delete, and nothing
 * else: no lease, no extension, no time limit, no waiters, no write-back of a token that a majority does not agree on.
 * The time that the library takes beyond this is the cost of its code.
 */
export async function open({ ports, ttlMs }) {
  const { ACQUIRE, VOTE, RELEASE } = await library('stores/redis/scripts/lua.js');
  const { LockKeys } = await library('stores/redis/node/lock-keys.js');
  const clients = await connectAll(ports);
  const isRedlock = clients.length > 1;
  const scripts = [isRedlock ? VOTE : ACQUIRE, RELEASE];
  await Promise.all(clients.flatMap((client) => scripts.map(({ source }) => client.script('LOAD', source))));
  const runners = clients.map(scriptRunner);
  const keys = new LockKeys(PREFIX, isRedlock ? 'sharded' : 'one');
  const counter = `${PREFIX}:fence`;
  const admission = keys.admission();
  let sequence = 0;
  let proposal = 0;

  const vote = (key, lock, owner) => {
    const names = [admission, lock, keys.fence(key)];
    proposal = Math.max(proposal + 1, Math.round((performance.timeOrigin + performance.now()) * 1_000));
    const args = ['', ttlMs, owner + proposal];
    const isGrant = (reply) => typeof reply === 'string' || reply[0] === 'at';
    return majority(runners, (run) => run(VOTE, names, args), isGrant);
  };

  return {
    async acquire(key) {
      const lock = keys.lock(key);
      const owner = `bench/${process.pid}/abcdefghijkl/${(sequence++).toString(36)}@`; // as long as the owner values of the library
      if (isRedlock) await vote(key, lock, owner);
      else if (typeof (await runners[0](ACQUIRE, [counter, lock], [ttlMs, owner])) !== 'string')
        throw new Error(`${key} is taken`);
      return { key, lock, owner };
    },
    release({ key, lock, owner }) {
      const give = (run) => run(RELEASE, [counter, lock, keys.queue(key)], [owner]);
      return isRedlock ? majority(runners, give, () => true) : give(runners[0]);
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

/**
 * Makes the function that runs scripts on one server, with as many locks a call as in the library. It sends an
 * operation at once if nothing is in flight; otherwise the operations of a tick travel together.
 */
function scriptRunner(client) {
  let inFlight = 0;
  let gathered = new Map();

  const send = ({ script, keys, args, operations }) => {
    inFlight++;
    client.evalsha(script.sha, keys.length, [...keys, ...args]).then(
      (reply) => {
        inFlight--;
        if (operations.length === 1) operations[0].resolve(reply);
        else operations.forEach(({ resolve }, index) => resolve(reply[index]));
      },
      (error) => {
        inFlight--;
        for (const { reject } of operations) reject(error);
      },
    );
  };

  const sendGathered = () => {
    const calls = gathered;
    gathered = new Map();
    for (const call of calls.values()) send(call);
  };

  return (script, keys, args) =>
    new Promise((resolve, reject) => {
      const operation = { resolve, reject };
      if (inFlight === 0 && gathered.size === 0) {
        send({ script, keys, args, operations: [operation] });
        return;
      }
      if (gathered.size === 0) process.nextTick(sendGathered);
      const call = gathered.get(script);
      if (!call) {
        gathered.set(script, { script, keys: [...keys], args: [...args], operations: [operation] });
        return;
      }
      for (let at = script.sharedKeys; at < keys.length; at++) call.keys.push(keys[at]);
      for (let at = script.sharedArgs; at < args.length; at++) call.args.push(args[at]);
      if (call.operations.push(operation) === script.locksPerCall) sendGathered();
    });
}
