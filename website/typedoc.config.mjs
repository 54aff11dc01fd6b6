import { readFileSync } from 'node:fs';
import { Converter } from 'typedoc';

const { name, exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

/** The API reference: a module for each entry point of the package, from the types and their comments. */
export default {
  entryPoints: Object.keys(exports)
    .filter((entry) => !entry.endsWith('.json'))
    .map((entry) => `../lib/${entry}/index.ts`),
  tsconfig: '../lib/tsconfig.esm.json',
  plugin: [named, 'typedoc-plugin-markdown', 'typedoc-vitepress-theme'],
  docsRoot: './.pages',
  out: './.pages/api',
  readme: 'none',
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true, // there is no place that they could link to
  hideBreadcrumbs: true,
  validation: { notExported: false },
  treatValidationWarningsAsErrors: true,
};

/** Names the modules as they are imported, not after their files. */
function named({ converter }) {
  converter.on(Converter.EVENT_END, ({ project }) => {
    for (const module of project.children) module.name = module.name === 'index' ? name : `${name}/${module.name}`;
  });
}
