/** The resource that the locks protect: counters in their own process, which does one thing at a time. */
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { Resource, type Access } from '../simulation/explorer/resource.js';
import { Journal } from './journal.js';

export type Answer = ReturnType<Resource['access']> & Pick<Access, 'turn'>;

const [folder, socketPath] = process.argv.slice(2) as [string, string];
const journal = new Journal(folder, 'resource');
const resource = new Resource((entry) => journal.note(entry));

createServer((client) => {
  const lines = createInterface({ input: client });
  // A worker was killed: the reader reports the error of its stream.
  client.on('error', () => {});
  lines.on('error', () => {});
  lines.on('line', (line) => {
    const access = JSON.parse(line) as Access;
    const answer: Answer = { turn: access.turn, ...resource.access(access) };
    if (client.writable) client.write(`${JSON.stringify(answer)}\n`);
  });
}).listen(socketPath, () => process.send?.('ready'));
process.on('disconnect', () => process.exit());
