import { quoted } from '../api/printable.js';

/**
 * Returns the page without data, which page-script.ts fills in.
 * @param url the requested path: the address of the script depends on whether it ends with a slash
 * @param canRelease whether the viewer may release locks by force
 * @param registration the registration whose locks it shows
 */
export function pageText(url: string, canRelease: boolean, registration: string): string {
  const path = url.replace(/[?#].*$/s, '');
  const folder = path.slice(path.lastIndexOf('/') + 1); // none behind a slash
  const base = `./${folder === '' ? '' : `${escaped(folder)}/`}`;
  const title = escaped(`Locks of ${quoted(registration)}`);
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>${title}</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="${base}page.css">
    <script src="${base}page.js" defer></script>
  </head>
  <body>
    <header>
      <h1>${title}</h1>
      <p id="servers"></p>
    </header>
    <main>
      <p class="filter">
        <label for="filter">Key</label>
        <input id="filter" type="search" autocomplete="off" spellcheck="false" aria-describedby="filter-hint">
        <span id="filter-hint">part of the key, or a pattern: * matches any text</span>
      </p>
      <p id="message" role="status"></p>
      <p id="count"></p>
      <div class="scroll" role="region" aria-labelledby="caption" tabindex="0">
        <table role="table">
          <caption id="caption">Held locks: locks with waiting calls first, then the oldest</caption>
          <thead role="rowgroup">
            <tr role="row">
              ${HEADINGS.concat(canRelease ? ['Release'] : [])
                .map((heading) => `<th scope="col" role="columnheader">${heading}</th>`)
                .join('\n              ')}
            </tr>
          </thead>
          <tbody id="rows" role="rowgroup"></tbody>
        </table>
      </div>
      <p id="empty" hidden></p>
      <p id="hint" class="faint">
        The last column shows the processes in the queue of the store, and the calls that wait in the process of the holder. Other processes report
        the number of their calls late, or not at all.
      </p>
      <noscript><p>This page needs JavaScript.</p></noscript>
    </main>${canRelease ? DIALOG : ''}
  </body>
</html>
`;
}

/** The headings of the columns; page-script.ts repeats them in each cell for narrow screens. */
export const HEADINGS = ['Key', 'Registration', 'Label', 'Held by', 'Since', 'Remaining', 'Token', 'Waiting, in order'];

const DIALOG = `
    <dialog id="dialog" aria-labelledby="dialog-title" aria-describedby="dialog-holder dialog-text">
      <h2 id="dialog-title">Release this lock by force?</h2>
      <p id="dialog-key"></p>
      <p id="dialog-holder"></p>
      <p id="dialog-text">
        The holder notices this at its next extension at the latest. Until then its work goes on: <span id="dialog-late"></span>. If the lock now has
        another holder, nothing happens.
      </p>
      <p class="buttons">
        <button id="dialog-cancel" type="button" autofocus>Cancel</button>
        <button id="dialog-release" type="button" class="force">Release</button>
      </p>
    </dialog>`;

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
