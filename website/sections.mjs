import { readFileSync } from 'node:fs';

const list = readFileSync(new URL('../docs/index.md', import.meta.url), 'utf8');

/** The sections of docs/index.md, the one list of all pages: their titles, and their pages with what these are about. */
export const sections = list
  .split(/^## /m)
  .slice(1)
  .map((section) => ({
    title: section.slice(0, section.indexOf('\n')),
    pages: [...section.matchAll(/^- \[([^\]]+)\]\(([^)]+)\)(?:: (.*))?$/gm)].map(([, title, path, about]) => ({
      title,
      path,
      about,
    })),
  }));
