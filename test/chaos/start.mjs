/** Compiles this folder and what it uses, without checking types, and runs it: see docs/chaos.md, or `--help`. */
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));
const target = join(root, 'node_modules/.cache', `nest-redis-lock-chaos-${process.pid}`);
process.on('exit', () => rmSync(target, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(130));
process.on('SIGTERM', () => process.exit(143));

const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true };
for (const folder of ['servers', 'test/chaos', 'test/support']) {
  for (const file of readdirSync(join(root, folder))) {
    if (!file.endsWith('.ts') || file.endsWith('.test.ts')) continue;
    const output = join(target, folder, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(output), { recursive: true });
    const source = readFileSync(join(root, folder, file), 'utf8');
    writeFileSync(output, ts.transpileModule(source, { compilerOptions }).outputText);
  }
}
writeFileSync(join(target, 'package.json'), '{ "type": "module" }');
// The modules of this folder import those of `lib/` from there: here they are the built ones.
symlinkSync(join(root, 'dist/esm'), join(target, 'lib'), 'junction');
const { main } = await import(pathToFileURL(join(target, 'test/chaos/main.js')).href);
process.exitCode = await main(process.argv.slice(2), { root });
process.exit();
