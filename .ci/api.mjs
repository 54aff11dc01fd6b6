import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CompilerState, Extractor, ExtractorConfig } from '@microsoft/api-extractor';

// Writes what each entry of the package exports, from what `npm run build` made, to etc/<entry>.api.md: npm run api
// Changes nothing with --check, but fails where a report is not what it would write: node .ci/api.mjs --check

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = join(root, 'etc');
const isCheck = process.argv.includes('--check');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

const entries = Object.entries(manifest.exports)
  .filter(([, conditions]) => conditions.import?.types !== undefined)
  .map(([entry, conditions]) => ({
    name: join(manifest.name, entry).replaceAll('/', '-'),
    types: join(root, conditions.import.types),
  }));

const written = mkdtempSync(join(tmpdir(), 'api-'));
try {
  mkdirSync(folder, { recursive: true });
  const configs = entries.map(configOf);
  const additionalEntryPoints = entries.slice(1).map(({ types }) => types);
  const compilerState = CompilerState.create(configs[0], { additionalEntryPoints });
  const results = configs.map((config) =>
    Extractor.invoke(config, { compilerState, localBuild: !isCheck, printApiReportDiff: isCheck, messageCallback }),
  );
  const isGreen = results.every(({ succeeded }) => succeeded) && noneIsLeftOver();
  if (!isGreen) console.error('The API differs from its reports: run `npm run api`, review the difference, commit it.');
  process.exitCode = isGreen ? 0 : 1;
} finally {
  rmSync(written, { recursive: true, force: true });
}

/** Leaves out which compiler is used, and the advice to copy a temporary file. */
function messageCallback(message) {
  if (['console-preamble', 'console-api-report-not-copied'].includes(message.messageId)) message.logLevel = 'none';
}

function configOf({ name, types }) {
  return ExtractorConfig.prepare({
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: types,
      newlineKind: 'lf',
      compiler: {
        overrideTsconfig: {
          extends: join(root, 'tsconfig.json'),
          compilerOptions: { paths: {} },
          files: [types],
          include: [],
        },
      },
      apiReport: {
        enabled: true,
        reportFolder: folder,
        reportTempFolder: written,
        reportFileName: name,
        // What an export is made of, such as an interface that it extends. Other entries would repeat most of the first one's.
        includeForgottenExports: name === manifest.name,
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
      messages: {
        // Warnings would be in the report, with files and lines of the build, which change with every comment.
        extractorMessageReporting: { default: { logLevel: 'none' } },
        tsdocMessageReporting: { default: { logLevel: 'none' } },
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: join(root, 'package.json'),
  });
}

/** Whether each report is that of an entry. */
function noneIsLeftOver() {
  const left = readdirSync(folder).filter((file) => !entries.some(({ name }) => file === `${name}.api.md`));
  for (const file of left) {
    if (isCheck) console.error(`etc/${file} is the report of no entry.`);
    else rmSync(join(folder, file));
  }
  return !isCheck || left.length === 0;
}
