import { HEADINGS } from './page-text.js';

/** The script of the page: plain DOM code that shows the data of view.ts. It inserts texts from the store only as text. */
export const PAGE_SCRIPT = `'use strict';
(() => {
  const own = document.currentScript.src;
  const address = (path) => new URL(path, own).href;
  const element = (id) => document.getElementById(id);
  const count = (n, noun) => n + ' ' + noun + (n === 1 ? '' : 's');

  const HEADINGS = ${JSON.stringify(HEADINGS)};

  /** The visible rows by key: { row, seenAt, cells, button, several }. */
  const shown = new Map();
  const dialog = element('dialog');
  let source;
  let lost;
  let registration;
  /** The row and the holder that the dialog asks about, as they were when the button was pressed. */
  let asked;

  // What is shown

  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function say(text, isAlarm) {
    const message = element('message');
    message.classList.toggle('alarm', isAlarm === true);
    setText(message, text);
  }

  function textOf(row) {
    return row.text ?? row.key;
  }

  function titleOf(row) {
    return textOf(row) + (row.scope === undefined ? '' : ' in the scope ' + row.scope);
  }

  function nameOf(process) {
    if (process.host === undefined) return 'another program';
    const name = process.host + ', pid ' + process.pid + (process.isThis ? ' (this process)' : '');
    const note = process.note === undefined ? '' : ', note "' + process.note + '"';
    return (process.detached ? 'detached by ' + name : name) + note;
  }

  function duration(ms) {
    const seconds = ms / 1000;
    if (seconds < 10) return seconds.toFixed(1) + ' s';
    if (seconds < 120) return Math.round(seconds) + ' s';
    if (seconds < 7200) return Math.round(seconds / 60) + ' min';
    return Math.round(seconds / 3600) + ' h';
  }

  function clock(time) {
    const date = new Date(time);
    const isToday = date.toDateString() === new Date().toDateString();
    return isToday ? date.toLocaleTimeString() : date.toLocaleString();
  }

  function remaining({ row, seenAt, cells }) {
    const ms = row.remainingMs - (performance.now() - seenAt);
    const isKept = row.keptUntil !== undefined;
    // A kept lock is meant to expire: its work has ended.
    cells.remaining.classList.toggle('alarm', ms <= 0 && !isKept);
    const text = ms > 0 ? duration(ms) : isKept ? '' : 'over';
    setText(cells.remaining, isKept ? [text, 'kept until ' + clock(row.keptUntil)].filter(Boolean).join(', ') : text);
  }

  function waiting(cell, row) {
    const here = [
      row.behind === undefined ? '' : count(row.behind, 'call') + ' behind the holder',
      row.waitingHere === 0 ? '' : count(row.waitingHere, 'call') + ' of this process',
    ].filter(Boolean);
    const names = (row.waiting ?? []).map((each) => nameOf(each) + (each.calls === undefined ? '' : ': ' + count(each.calls, 'call')));
    // Calls inside another holder's process are visible only after its next extension; a detached lock has none.
    const areSeen = (row.holders ?? [row.holder]).every(({ isThis, detached }) => isThis || detached) && !row.more;
    if (names.length === 0 && here.length === 0) here.push(row.waiting === undefined ? 'unknown' : areSeen ? 'none' : 'none in the queue');
    const text = JSON.stringify([names, here]);
    if (cell.dataset.shown === text) return;
    cell.dataset.shown = text;
    const list = document.createElement('ol');
    for (const name of names) list.append(Object.assign(document.createElement('li'), { textContent: name }));
    cell.replaceChildren(...(names.length > 0 ? [list] : []), here.join(', '));
  }

  function releaseButton(what, onClick) {
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: 'Release\\u2026' });
    button.setAttribute('aria-label', 'Release ' + what);
    button.addEventListener('click', onClick);
    return button;
  }

  function partOf(holder) {
    return nameOf(holder) + (holder.permits === undefined ? '' : ': ' + count(holder.permits, 'permit'));
  }

  function holders(entry, row) {
    const cell = entry.cells.holder;
    if (row.holders === undefined) {
      if (entry.several) cell.replaceChildren();
      entry.several = undefined;
      return setText(cell, nameOf(row.holder));
    }
    if (!entry.several) {
      entry.several = { items: new Map() };
      for (const [name, tag] of [['how', 'div'], ['list', 'ul'], ['more', 'div']]) entry.several[name] = document.createElement(tag);
      cell.replaceChildren(entry.several.how, entry.several.list, entry.several.more);
    }
    const { items, how, list, more } = entry.several;
    const { permits } = row;
    setText(how, permits ? permits.held + ' of ' + permits.limit + ' permits' : 'shared');
    setText(more, row.more > 0 ? 'and ' + count(row.more, 'more holder') : '');
    // Items that stay are not moved, like lines. Without digests they contain nothing that can have the focus.
    const ids = row.holders.map(({ digest }, index) => digest ?? index);
    for (const [id, { item }] of items) {
      if (ids.includes(id)) continue;
      items.delete(id);
      item.remove();
    }
    row.holders.forEach((holder, index) => {
      let each = items.get(ids[index]);
      if (!each) {
        each = { item: document.createElement('li'), text: document.createElement('span') };
        const shownHolder = each;
        each.item.append(each.text);
        if (holder.digest !== undefined) {
          const what = titleOf(row) + ', ' + partOf(holder);
          each.item.append(' ', releaseButton(what, () => ask(entry.row, shownHolder.holder)));
        }
        items.set(ids[index], each);
      }
      each.holder = holder;
      setText(each.text, partOf(holder) + (holder.since === undefined ? '' : ', since ' + clock(holder.since)));
      if (list.children[index] !== each.item) list.insertBefore(each.item, list.children[index] ?? null);
    });
  }

  function newEntry() {
    const line = document.createElement('tr');
    const cells = {};
    line.setAttribute('role', 'row'); // on a narrow screen, the style removes it from the table
    ['key', 'registration', 'label', 'holder', 'since', 'remaining', 'token', 'waiting'].forEach((name, index) => {
      const cell = document.createElement(name === 'key' ? 'th' : 'td');
      cell.setAttribute('role', name === 'key' ? 'rowheader' : 'cell');
      cell.dataset.heading = HEADINGS[index];
      cells[name] = cell;
      line.append(cell);
    });
    if (dialog) {
      cells.release = document.createElement('td');
      cells.release.setAttribute('role', 'cell');
      line.append(cells.release);
    }
    cells.key.scope = 'row';
    cells.scope = Object.assign(document.createElement('div'), { className: 'scope' });
    cells.text = document.createElement('div');
    cells.key.append(cells.scope, cells.text);
    return { line, cells };
  }

  function fill(entry, row) {
    const { cells } = entry;
    Object.assign(entry, { row, seenAt: performance.now() });
    setText(cells.scope, row.scope ?? '');
    cells.scope.hidden = row.scope === undefined;
    setText(cells.text, textOf(row));
    cells.text.classList.toggle('long', textOf(row).length > 200);
    // So that the keyboard can scroll it.
    if (textOf(row).length > 200) cells.text.tabIndex = 0;
    setText(cells.registration, registration);
    setText(cells.label, row.label ?? '');
    holders(entry, row);
    setText(cells.since, row.since === undefined ? 'unknown' : clock(row.since));
    setText(cells.token, row.permits ? 'none' : row.token === undefined ? 'unknown' : String(row.token));
    waiting(cells.waiting, row);
    remaining(entry);
    if (cells.release && row.digest !== undefined && !entry.button) {
      entry.button = releaseButton(titleOf(row), () => ask(entry.row, { ...entry.row.holder, digest: entry.row.digest }));
      cells.release.append(entry.button);
    }
    // Each of several holders has its own button.
    if (entry.button) entry.button.hidden = row.digest === undefined;
  }

  function showRows(rows) {
    const body = element('rows');
    const keys = new Set(rows.map(({ key }) => key));
    for (const [key, { line }] of shown) {
      if (keys.has(key)) continue;
      shown.delete(key);
      line.remove();
    }
    // Lines that stay are not moved, since that would lose the selection. A line that moves gets its focus back.
    const focused = document.activeElement;
    rows.forEach((row, index) => {
      let entry = shown.get(row.key);
      if (!entry) shown.set(row.key, (entry = newEntry()));
      fill(entry, row);
      if (body.children[index] !== entry.line) body.insertBefore(entry.line, body.children[index] ?? null);
    });
    if (focused !== document.activeElement) focused.focus();
  }

  function showEmpty(isEmpty, incomplete) {
    element('rows').closest('.scroll').hidden = isEmpty;
    element('hint').hidden = isEmpty;
    element('empty').hidden = !isEmpty;
    const what = element('filter').value === '' ? 'No lock is held now.' : 'No lock with a matching key is held now.';
    setText(element('empty'), incomplete === undefined ? what : 'No lock was found.');
  }

  function show({ ping, problem, incomplete, rows, ...view }) {
    registration = view.registration;
    const servers = element('servers');
    const { voting, of } = ping.nodes;
    const state = ping.available ? 'Locks can be taken.' : 'No lock can be taken.';
    const answering = of === 1 ? '' : ' ' + voting + ' of ' + of + ' servers vote.';
    setText(servers, [state + answering, ...ping.problems].join('\\n'));
    servers.classList.toggle('alarm', !ping.available);
    if (rows === undefined) return say('Not updated since ' + (element('count').dataset.at ?? 'the start') + ': ' + problem, true);
    if (element('message').classList.contains('alarm')) say('');
    showRows(rows);
    showEmpty(rows.length === 0, incomplete);
    const at = (element('count').dataset.at = new Date().toLocaleTimeString());
    const found = incomplete === 'rows' ? 'The first ' + rows.length + ' locks that were found' : count(rows.length, 'lock') + ' held';
    const more = { rows: ': narrow the search with a part of the key.', time: ', perhaps more: the search was cut short, or a server did not answer.' };
    setText(element('count'), found + ' (' + at + ')' + (more[incomplete] ?? '.'));
  }

  // Release by force

  function ask(row, holder) {
    asked = { row, holder };
    setText(element('dialog-key'), titleOf(row));
    const others = row.holders === undefined ? '' : ' Other holders keep their hold.';
    setText(element('dialog-holder'), (holder.detached ? 'It was ' : 'Held by ') + partOf(holder) + '.' + others);
    const late = row.permits
      ? 'more calls may run than the limit allows, and permits have no fencing token that could stop them'
      : 'only a resource that checks fencing tokens refuses its writes';
    setText(element('dialog-late'), late);
    dialog.showModal();
  }

  async function release({ row, holder: { digest } }) {
    const { key } = row;
    const name = titleOf(row);
    try {
      const response = await fetch(address('release'), {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ key, digest }),
      });
      const answer = await response.json().catch(() => ({}));
      if (!response.ok) throw new Error(answer.message || 'the server answered ' + response.status);
      if (answer.released) say('Released: ' + name);
      else say('Not released, because it now has another holder, or none: ' + name);
    } catch (error) {
      say('Not confirmed: ' + name + ' (' + error.message + ')');
    }
  }

  // The stream

  function watch() {
    clearTimeout(lost);
    source?.close();
    const text = element('filter').value;
    const pattern = text.includes('*') ? text : '*' + text + '*';
    source = new EventSource(address(text === '' ? 'events' : 'events?match=' + encodeURIComponent(pattern)));
    source.onmessage = ({ data }) => {
      clearTimeout(lost);
      show(JSON.parse(data));
    };
    source.onerror = ({ target }) => {
      clearTimeout(lost);
      const isRefused = target.readyState === EventSource.CLOSED;
      // The browser reconnects automatically, unless the response was an error. Streams also end regularly, without a fault.
      lost = setTimeout(() => {
        say('Not connected. If this continues, reload the page: you may have to sign in.', true);
        if (isRefused) watch();
      }, 5000);
    };
  }

  let typing;
  element('filter').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(watch, 300);
  });
  dialog?.addEventListener('click', ({ target }) => {
    if (target.id === 'dialog-cancel' || target.id === 'dialog-release') dialog.close();
    if (target.id === 'dialog-release') void release(asked);
  });
  setInterval(() => shown.forEach(remaining), 1000);
  watch();
})();
`;
