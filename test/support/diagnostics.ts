import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { generate, root } from '../readme/compile.js';

const compilerOptions = { noUnusedLocals: false, noUnusedParameters: false, isolatedModules: true };

export interface Diagnostic {
  file: string;
  /** Line of the source, from 1. */
  line: number;
  message: string;
}

/**
 * The errors of the compiler in these files, with the settings of this repository and `isolatedModules`. Errors of
 * modules that they import are left out: `npm run types` finds those.
 * @param declarations of packages that are not installed
 */
export async function diagnosticsIn(files: string[], ...declarations: string[]): Promise<Diagnostic[]> {
  const config = { extends: `${root}tsconfig.json`, compilerOptions, include: [], files: [...files, ...declarations] };
  const path = generate(`${files[0]!.split('/').at(-1)}.tsconfig.json`, JSON.stringify(config));
  const compiler = spawn(`${root}node_modules/.bin/tsc`, ['-p', path, '--pretty', 'false', '--singleThreaded'], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const printed = await text(compiler.stdout);
  // One line for each error, and indented lines with its reasons.
  const errors = printed.split(/\n(?=\S)/).filter(Boolean);
  return errors
    .map((error) => {
      const [, file, line, message] = /^(\S+)\((\d+),\d+\): error TS\d+: ([^]*)$/.exec(error) ?? [];
      if (message === undefined) throw new Error(`The compiler could not run: ${printed}`);
      return { file: `${root}${file}`, line: Number(line), message: message.trimEnd() };
    })
    .filter(({ file }) => files.includes(file));
}
