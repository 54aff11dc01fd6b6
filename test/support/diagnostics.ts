import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { config } = ts.readConfigFile(`${root}tsconfig.json`, (path) => readFileSync(path, 'utf8')) as {
  config: object;
};
const options = {
  ...ts.parseJsonConfigFileContent(config, ts.sys, root).options,
  noUnusedLocals: false,
  noUnusedParameters: false,
  isolatedModules: true,
};

/** What one program has read, the next ones do not read again. */
const known = new Map<string, ts.SourceFile | undefined>();
const host = ts.createCompilerHost(options);
const getSourceFile = host.getSourceFile.bind(host);
host.getSourceFile = (path, ...rest) => {
  if (!known.has(path)) known.set(path, getSourceFile(path, ...rest));
  return known.get(path);
};

export interface Diagnostic {
  /** Line of the source, from 1. */
  line: number;
  message: string;
}

/** The errors of the compiler in a module in test/nest, with the settings of this repository and `isolatedModules`. */
export function diagnosticsOf(source: string): Diagnostic[] {
  const name = `${root}test/nest/in-memory-${known.size}.ts`;
  known.set(name, ts.createSourceFile(name, source, ts.ScriptTarget.ES2022));
  return diagnosticsIn([name]).map(({ file, start = 0, messageText }) => ({
    line: file ? file.getLineAndCharacterOfPosition(start).line + 1 : 0,
    message: ts.flattenDiagnosticMessageText(messageText, '\n'),
  }));
}

/**
 * The errors of the compiler in these files, as it prints them: none if they are correct.
 * @param declarations of packages that are not installed
 */
export function printedDiagnosticsIn(files: string[], declarations: string): string {
  return ts.formatDiagnostics(diagnosticsIn(files, declarations), host);
}

function diagnosticsIn(files: string[], ...others: string[]): ts.Diagnostic[] {
  const program = ts.createProgram([...files, ...others], options, host);
  // Not the errors of the library, which they import: it is checked separately.
  return files.flatMap((file) => ts.getPreEmitDiagnostics(program, program.getSourceFile(file)!));
}
