import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitepress';
import llmstxt from 'vitepress-plugin-llms';
import { sections } from '../sections.mjs';

const read = (path) => readFileSync(new URL(path, import.meta.url), 'utf8');
const { description } = JSON.parse(read('../../package.json'));
const api = JSON.parse(read('../.pages/api/typedoc-sidebar.json'));

const decisions = readdirSync(new URL('../.pages/adr', import.meta.url))
  .sort()
  .map((file) => ({ text: /^# (.*)$/m.exec(read(`../.pages/adr/${file}`))[1], link: `/adr/${file}` }));

const sidebar = sections.map(({ title, pages }) => ({
  text: title,
  items: pages.map(({ title, path }) =>
    path === 'adr' ? { text: title, collapsed: true, items: decisions } : { text: title, link: `/${path}` },
  ),
}));

/** What llms.txt lists: the pages with what they are about. */
const toc = sections
  .map(({ title, pages }) => {
    const lines = pages.map(({ title, path, about }) => {
      const target = path === 'adr' ? decisions[0].link : `/${path}`;
      return `- [${title}](${target})${about ? `: ${about}` : ''}`;
    });
    return `### ${title}\n\n${lines.join('\n')}`;
  })
  .join('\n\n');

/** What the search knows of a page. */
function renderForSearch(text, env, md) {
  const html = md.render(text, env);
  return env.relativePath.startsWith('adr/') ? '' : html;
}

export default defineConfig({
  title: 'nest-redis-lock',
  description,
  srcDir: '.pages',
  ignoreDeadLinks: false,
  // Anchors as GitHub makes them, where the same pages are read.
  markdown: {
    anchor: {
      slugify: (heading) =>
        heading
          .toLowerCase()
          .replaceAll(/[^\w\s-]/g, '')
          .replaceAll(' ', '-'),
    },
  },
  themeConfig: {
    // The records of decisions would come before the guides.
    search: { provider: 'local', options: { _render: renderForSearch } },
    outline: [2, 3],
    nav: [
      { text: 'Start', link: '/start' },
      { text: 'Recipes', link: '/recipes' },
      { text: 'Options', link: '/options' },
      { text: 'API', link: '/api/' },
    ],
    sidebar: [...sidebar, { text: 'API reference', collapsed: true, items: api }],
  },
  vite: { plugins: [llmstxt({ customTemplateVariables: { description, toc } })] },
});
