import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'rolldown/utils';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Compiles modules of the tests, without type checks, for a program that runs without vitest. They are removed when
 * this process ends.
 * @param {string} name of the program
 * @param {string[]} folders of the project; with their files, but without their folders
 * @returns {string} the folder that stands for the folder of the project
 */
export function compileProgram(name, folders) {
  const target = join(root, 'node_modules/.cache', `nest-redis-lock-${name}-${process.pid}`);
  process.on('exit', () => rmSync(target, { recursive: true, force: true }));
  process.on('SIGINT', () => process.exit(130));
  process.on('SIGTERM', () => process.exit(143));

  for (const folder of folders) {
    for (const file of readdirSync(join(root, folder))) {
      if (!file.endsWith('.ts') || file.endsWith('.test.ts')) continue;
      const output = join(target, folder, file.replace(/\.ts$/, '.js'));
      mkdirSync(dirname(output), { recursive: true });
      const source = readFileSync(join(root, folder, file), 'utf8');
      writeFileSync(output, transformSync(file, source, { target: 'es2022', tsconfig: false }).code);
    }
  }
  writeFileSync(join(target, 'package.json'), '{ "type": "module" }');
  return target;
}
