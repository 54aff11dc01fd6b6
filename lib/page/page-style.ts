export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --text: #1c2024;
  --faint: #565d66;
  --ground: #ffffff;
  --raised: #f4f5f7;
  --line: #d4d8dd;
  --accent: #0b57d0;
  --alarm: #b3261e;
}

@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e8eb;
    --faint: #a9b1ba;
    --ground: #15181c;
    --raised: #20252b;
    --line: #3a414a;
    --accent: #8ab4f8;
    --alarm: #ff897d;
  }
}

body {
  margin: 0 auto;
  max-width: 90rem;
  padding: 1rem 1.5rem;
  background: var(--ground);
  color: var(--text);
  font: 0.9375rem/1.45 system-ui, sans-serif;
}

header {
  display: flex;
  flex-wrap: wrap;
  align-items: baseline;
  gap: 0 1.5rem;
}

h1 { margin: 0; font-size: 1.5rem; }
h2 { margin: 0; font-size: 1.125rem; }
p { margin: 0.5rem 0; }
label { font-weight: 600; }
#servers, #filter-hint, #count, caption, .faint { color: var(--faint); }
#servers.alarm, #message.alarm, .alarm { color: var(--alarm); font-weight: 600; }
#servers, #message { white-space: pre-line; }
#message:empty { display: none; }

input, button { border: 1px solid var(--faint); border-radius: 0.25rem; padding: 0.25rem 0.625rem; font: inherit; }
input { background: var(--ground); color: var(--text); width: 20rem; max-width: 100%; box-sizing: border-box; }
button { background: var(--raised); color: var(--text); cursor: pointer; }
button.force { border-color: var(--alarm); color: var(--alarm); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }

.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { padding-bottom: 0.25rem; text-align: start; }
th, td { padding: 0.375rem 0.75rem 0.375rem 0; border-bottom: 1px solid var(--line); text-align: start; vertical-align: top; }
thead th { white-space: nowrap; }
tbody th, tbody td { overflow-wrap: anywhere; min-width: 5rem; }
tbody td[data-heading='Since'], tbody td[data-heading='Token'], tbody button { white-space: nowrap; }
tbody th { font-weight: 600; min-width: 10rem; white-space: pre-wrap; }
tbody th div { max-width: 26rem; }
tbody th div.scope { color: var(--faint); font-weight: 400; font-size: 0.8125rem; }
tbody th div.long { max-height: 8.7em; overflow-y: auto; }
ol, ul { margin: 0; padding-inline-start: 1.25rem; }

/* On a narrow screen, each lock is a block, and each cell shows its heading. */
@media (max-width: 64rem) {
  body { padding: 0.75rem; }
  table, tbody, caption { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr {
    display: grid;
    grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
    gap: 0.375rem 1rem;
    padding: 0.75rem 0;
    border-bottom: 1px solid var(--line);
  }
  tbody th, tbody td { display: block; padding: 0; border: 0; min-width: 0; }
  tbody td:empty { display: none; }
  tbody th { grid-column: 1 / -1; }
  tbody th div { max-width: none; }
  tbody td[data-heading]::before { content: attr(data-heading); display: block; color: var(--faint); font-size: 0.8125rem; }
}

dialog {
  max-width: 34rem;
  border: 1px solid var(--line);
  border-radius: 0.5rem;
  background: var(--ground);
  color: var(--text);
}
dialog::backdrop { background: rgb(0 0 0 / 0.5); }
#dialog-key { font-weight: 600; max-height: 8.7em; overflow-wrap: anywhere; overflow-y: auto; white-space: pre-wrap; }
.buttons { display: flex; gap: 0.75rem; justify-content: flex-end; }
`;
