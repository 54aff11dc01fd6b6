/** What the locks protect: counters, in a process of their own, which does one thing at a time. */
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { Journal } from './journal.js';

/** One line of a client; with `base` a write of base + 1. */
export interface Access {
  turn: string;
  key: string;
  token?: number;
  base?: number;
}

export interface Answer {
  turn: string;
  accepted: boolean;
  value: number;
}

const [folder, socketPath] = process.argv.slice(2) as [string, string];
const journal = new Journal(folder, 'resource');
const values = new Map<string, number>();
const highest = new Map<string, number>();

/** Who comes with a smaller token than was seen is late. A reader means to write: it shuts out earlier holders, too. */
function serve({ turn, key, token, base }: Access): Answer {
  const value = values.get(key) ?? 0;
  const accepted = token === undefined || token >= (highest.get(key) ?? 0);
  if (accepted && token !== undefined) highest.set(key, token);
  if (accepted && base !== undefined) values.set(key, base + 1);
  journal.note({ type: base === undefined ? 'read' : 'write', turn, key, token, base: base ?? value, accepted });
  return { turn, accepted, value: values.get(key) ?? 0 };
}

createServer((client) => {
  const lines = createInterface({ input: client });
  // A worker was killed; the reader repeats what its stream says.
  client.on('error', () => {});
  lines.on('error', () => {});
  lines.on('line', (line) => {
    const answer = serve(JSON.parse(line) as Access);
    if (client.writable) client.write(`${JSON.stringify(answer)}\n`);
  });
}).listen(socketPath, () => process.send?.('ready'));
process.on('disconnect', () => process.exit());
