/** Compiles this folder and what it uses, without type checks, and runs it: see docs/chaos.md, or `--help`. */
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileProgram, root } from '../support/compile-program.mjs';

const tests = ['chaos', 'simulation', 'simulation/explorer', 'support'].map((folder) => `test/${folder}`);
const target = compileProgram('chaos', ['servers', ...tests]);
// The modules of this folder import the modules of `lib/` from there: here these are the built ones.
symlinkSync(join(root, 'dist/esm'), join(target, 'lib'), 'junction');
const { main } = await import(pathToFileURL(join(target, 'test/chaos/main.js')).href);
process.exitCode = await main(process.argv.slice(2), { root });
process.exit();
