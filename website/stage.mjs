/**
 * Copies docs/ and the README to website/.pages, from where the site is built: for pages outside of its folder VitePress does not
 * find Vue. The Markdown stays as it is but for links that a site cannot have: what is not on the site is named without a link,
 * and the README, its first page, is called index.md.
 */
import { cpSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, posix, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const pages = join(root, 'website/.pages');

/** Links of Markdown, and pictures: the mark of a picture, the text, the target, and the anchor there. */
const LINK = /(!?)\[((?:[^[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)/g;

rmSync(pages, { recursive: true, force: true });
cpSync(join(root, 'docs'), pages, { recursive: true });
rmSync(join(pages, 'index.md')); // the list of all pages, which the site has as its sidebar
for (const page of readdirSync(pages, { recursive: true, encoding: 'utf8' })) {
  if (page.endsWith('.md')) stage(posix.join('docs', page), page);
}
stage('README.md', 'index.md');

/** Writes a page of the site from a page of the repository, both by their paths there. */
function stage(from, to) {
  const text = readFileSync(join(root, from), 'utf8').replaceAll(LINK, (link, picture, text, path, anchor = '') => {
    if (path === '') return link;
    const target = onSite(from, posix.join(posix.dirname(from), path));
    if (target === undefined) return text;
    // A file that is no page is on the site as it is, if it is linked.
    if (!picture && !target.endsWith('.md')) cpSync(join(root, 'docs', target), join(pages, 'public', target));
    return `${picture}[${text}](${relative(dirname(to), target)}${anchor})`;
  });
  writeFileSync(join(pages, to), text);
}

/**
 * The path on the site of a file of the repository; of a folder, its first page.
 * @throws when a page links to what is not there
 */
function onSite(from, path) {
  const isFolder = statSync(join(root, path), { throwIfNoEntry: false })?.isDirectory();
  if (isFolder === undefined) throw new Error(`${from} links to ${path}, which is not there.`);
  if (path === 'README.md') return 'index.md';
  if (!path.startsWith('docs/') || path === 'docs/index.md') return undefined;
  return relative('docs', isFolder ? posix.join(path, readdirSync(join(root, path)).sort()[0]) : path);
}
