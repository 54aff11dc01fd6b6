import 'reflect-metadata';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { demonstrate } from './demonstration.js';
import { introduction, reportOf } from './report.js';
import { invitation } from './serve.js';
import { Site } from './site.js';
import { problemsOf } from './verdict.js';

const USAGE = `npm start [-- options]
  --serve   open the shop and keep it open so that you can try it by hand
  --memory  one instance with its locks in memory, even if there is a Redis
  --sql     three instances with their locks in a PostgreSQL table (PGlite)
  --json    print the figures as one line of JSON; everything else goes to stderr`;

const closing = new AbortController();
const closed = once(closing.signal, 'abort');
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => closing.abort());

process.exitCode = await run().catch((error: unknown) => {
  if (closing.signal.aborted) return 130;
  console.error(`\nThe sample could not run: ${error instanceof Error ? error.message : String(error)}`);
  return 1;
});

async function run(): Promise<number> {
  const options = readOptions();
  if (!options) return 2;
  const { serve, memory, sql, json } = options;
  const say = json ? console.error : console.log;
  const site = await Site.open({ memory, sql, signal: closing.signal });
  try {
    say(`\n${introduction(site.backing)}\n`);
    if (serve) {
      say(await invitation(site));
      await closed;
      return 0;
    }
    const figures = await Promise.race([demonstrate(site), closed.then(interrupt)]);
    const problems = problemsOf(figures);
    if (json) console.log(JSON.stringify({ ...figures, problems }));
    say(reportOf(figures));
    say(problems.length === 0 ? '\nAll figures hold.' : `\nThe figures do not hold:\n- ${problems.join('\n- ')}`);
    return problems.length === 0 ? 0 : 1;
  } finally {
    await site.close();
  }
}

function interrupt(): never {
  throw new Error('it was interrupted.');
}

function readOptions(): { serve: boolean; memory: boolean; sql: boolean; json: boolean } | undefined {
  const flag = { type: 'boolean', default: false } as const;
  try {
    return parseArgs({ options: { serve: flag, memory: flag, sql: flag, json: flag } }).values;
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return undefined;
  }
}
