// npm run model [-- <most states of one exploration>]
import { runnerImport } from 'vite';

const { module } = await runnerImport(new URL('main.ts', import.meta.url).pathname, { configFile: false });
process.exitCode = module.main(Number(process.argv[2] ?? 2_000_000)) ? 0 : 1;
