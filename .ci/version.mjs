/** Writes the version of package.json into lib/api/version.ts, where bundles find it, too, and into the applications of examples/. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const at = (path) => new URL(`../${path}`, import.meta.url);
const { version } = JSON.parse(readFileSync(at('package.json'), 'utf8'));
const file = at('lib/api/version.ts');
const text = readFileSync(file, 'utf8');
writeFileSync(file, text.replace(/(?<=VERSION = ')[^']*/, version));

for (const example of readdirSync(at('examples'))) {
  const manifest = at(`examples/${example}/package.json`);
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(/(?<="nest-redis-lock": "\^)[^"]*/, version));
}
