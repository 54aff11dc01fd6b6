import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));
const name = `${root}test/nest/in-memory.ts`;

export interface Diagnostic {
  /** Line of the source, from 1. */
  line: number;
  message: string;
}

/** The errors of the compiler in a module in test/nest, with the settings of this repository and `isolatedModules`. */
export function diagnosticsOf(source: string): Diagnostic[] {
  const { config } = ts.readConfigFile(`${root}tsconfig.json`, (path) => readFileSync(path, 'utf8')) as {
    config: object;
  };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const merged = { ...options, noUnusedLocals: false, noUnusedParameters: false, isolatedModules: true };
  const host = ts.createCompilerHost(merged);
  const getSourceFile = host.getSourceFile.bind(host);
  host.getSourceFile = (path, ...rest) =>
    path === name ? ts.createSourceFile(path, source, ts.ScriptTarget.ES2022) : getSourceFile(path, ...rest);
  host.fileExists = (path) => path === name || ts.sys.fileExists(path);
  host.readFile = (path) => (path === name ? source : ts.sys.readFile(path));
  const program = ts.createProgram([name], merged, host);
  return ts.getPreEmitDiagnostics(program, program.getSourceFile(name)).map(({ file, start = 0, messageText }) => ({
    line: file ? file.getLineAndCharacterOfPosition(start).line + 1 : 0,
    message: ts.flattenDiagnosticMessageText(messageText, '\n'),
  }));
}
