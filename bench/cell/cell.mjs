/** One cell: one contestant in one scenario, once, in its own processes and on its own redis-servers. */
import { SCENARIOS } from '../scenarios/index.mjs';
import { startRedisCluster } from './redis-cluster.mjs';
import { startRedisServers } from './redis-servers.mjs';
import { WorkerProcess } from './worker-process.mjs';

const TTL_MS = 30_000;
const WAIT_MS = 120_000; // longer than a cell may take: nobody gives up

const { scenario: id, contestant, quick, counting, scratch } = JSON.parse(process.argv[2]);

async function run() {
  const scenario = SCENARIOS[id];
  const { masters, nodes = 1 } = scenario;
  const servers = await (masters ? startRedisCluster(masters, scratch) : startRedisServers(nodes));
  const { processes = 1, beside } = scenario;
  const contestants = beside ? [contestant, ...beside] : Array(processes).fill(contestant);
  const workers = contestants.map(() => new WorkerProcess());
  const terms = {
    ports: servers.map(({ port }) => port),
    ttlMs: TTL_MS,
    waitMs: WAIT_MS,
    processes: workers.length,
    isCluster: masters !== undefined,
    ...scenario.terms,
  };
  const open = (worker, index) =>
    worker.run('open', { scenario: id, contestant: contestants[index], counting, ...terms });
  await Promise.all(workers.map(open));
  return scenario.coordinate({ contestant, servers, workers, quick, counting, scratch });
}

run().then(
  (result) => process.send({ result }),
  ({ name, message, isRefused }) => process.send({ failure: `${name}: ${message}`, isRefused }),
);
