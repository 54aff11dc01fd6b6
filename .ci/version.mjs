/** Writes the version of package.json into lib/api/version.ts, where bundles find it, too. */
import { readFileSync, writeFileSync } from 'node:fs';

const at = (path) => new URL(`../${path}`, import.meta.url);
const { version } = JSON.parse(readFileSync(at('package.json'), 'utf8'));
const file = at('lib/api/version.ts');
const text = readFileSync(file, 'utf8');
writeFileSync(file, text.replace(/(?<=VERSION = ')[^']*/, version));
