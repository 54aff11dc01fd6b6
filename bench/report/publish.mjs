import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format } from 'prettier';
import { markdown } from './markdown.mjs';
import { plots } from './plots.mjs';
import { summarise } from './summary.mjs';

const docs = (path) => fileURLToPath(new URL(`../../docs/${path}`, import.meta.url));
const STYLE = { printWidth: 120, singleQuote: true };
const FIGURES = /(<!-- figures of the bench -->)[^]*(<!-- end of the figures -->)/;

export async function writeResults(file, results) {
  writeFileSync(file, await format(JSON.stringify(results), { ...STYLE, parser: 'json' }));
}

/** Writes the plots and the tables of `docs/performance.md` from the results of a run, which stay where they are. */
export async function publish(results) {
  const summary = summarise(results);
  mkdirSync(docs('performance'), { recursive: true });
  for (const [name, svg] of plots(summary)) writeFileSync(docs(`performance/${name}.svg`), svg);

  const page = docs('performance.md');
  const text = readFileSync(page, 'utf8');
  if (!FIGURES.test(text)) throw new Error('docs/performance.md has lost the marks between which the figures stand.');
  const figures = markdown(results, summary);
  const written = text.replace(FIGURES, (_, begin, end) => `${begin}\n\n${figures}\n\n${end}`);
  writeFileSync(page, await format(written, { ...STYLE, parser: 'markdown' }));
}
