/** Compiles the simulation, without checking types, and runs its explorer on the built library: see `--help`. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileProgram, root } from '../../support/compile-program.mjs';

const folders = ['explorer', 'redis', 'lua', ''].map((folder) => join('test/simulation', folder));
const target = compileProgram('simulation', [...folders, 'test/chaos', 'test/support']);
const { main } = await import(pathToFileURL(join(target, 'test/simulation/explorer/main.js')).href);
process.exitCode = await main(process.argv.slice(2), {
  root,
  library: join(root, 'dist/cjs'),
});
process.exit();
