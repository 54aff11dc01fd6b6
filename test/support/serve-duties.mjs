// What the workers of driven-process.ts share.
import { pathToFileURL } from 'node:url';

const [library, json] = process.argv.slice(2);

export const settings = JSON.parse(json);

/** Imports a module of the compiled library. */
export const load = (file) => import(pathToFileURL(`${library}/${file}`).href);

/** Reports that it is ready, and executes each requested duty by name. It ends with the process that asks. */
export function serve(duties) {
  process.on('message', async ({ id, duty, args }) => {
    try {
      process.send({ id, value: await duties[duty](...args) });
    } catch (error) {
      process.send({ id, error: `${error.name}: ${error.message}` });
    }
  });
  process.on('disconnect', () => process.exit());
  process.send({ ready: true });
}
