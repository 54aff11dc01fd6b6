/**
 * Draws docs/images/rooms.svg from the rooms of .dependency-cruiser.mjs: which room may import from which. With `--check` it only says
 * whether the picture is up to date.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { ROOMS } from '../.dependency-cruiser.mjs';

const target = new URL('../docs/images/rooms.svg', import.meta.url);
const CELL = 16;
const LEFT = 190;
const TOP = 20;

const rooms = Object.keys(ROOMS);
const width = LEFT + rooms.length * CELL + 80;
const height = TOP + rooms.length * CELL + 20;

/** The rooms that one may import from: a name may stand for all rooms in a folder. Packages are left out. */
function importsOf(room) {
  const before = rooms.slice(0, rooms.indexOf(room));
  return before.filter((other) => ROOMS[room].some((name) => other === name || isIn(other, name)));
}

function isIn(room, folder) {
  return !rooms.includes(folder) && room.startsWith(`${folder}/`);
}

/** The middle of a row, or of a column, behind its margin. */
const at = (room) => rooms.indexOf(room) * CELL + CELL / 2;
const bands = rooms.flatMap((room, row) => (row % 2 === 0 ? [bandOf(room)] : []));
const lines = rooms.map((room) => {
  const x = LEFT + at(room);
  return `<line class="grid" x1="${x}" y1="${TOP + at(room)}" x2="${x}" y2="${height - 20}" />`;
});
const rows = rooms.flatMap((room) => {
  const [x, y] = [LEFT + at(room), TOP + at(room)];
  const dots = importsOf(room).map(
    (other) =>
      `<circle class="may" cx="${LEFT + at(other)}" cy="${y}" r="5"><title>${room} may import ${other}</title></circle>`,
  );
  return [
    `<text class="row" x="${LEFT - 8}" y="${y + 4}">${room}</text>`,
    ...dots,
    `<rect class="self" x="${x - 7}" y="${y - 7}" width="14" height="14" rx="3" />`,
    `<text x="${x + 14}" y="${y + 4}">${room}</text>`,
  ];
});

function bandOf(room) {
  return `<rect class="band" x="8" y="${TOP + at(room) - CELL / 2}" width="${width - 16}" height="${CELL}" />`;
}

const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title">
  <title id="title">The rooms of lib: a dot in the line of a room says that it may import from the room whose square is above the dot. No dot is right of a square: no import goes up.</title>
  <style>
    text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
    .row { text-anchor: end; }
    .card { fill: #ffffff; stroke: #d1d9e0; }
    .band { fill: #f6f8fa; }
    .grid { stroke: #d1d9e0; }
    .self { fill: #818b98; }
    .may { fill: #0969da; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .card { fill: #0d1117; stroke: #3d444d; }
      .band { fill: #151b23; }
      .grid { stroke: #3d444d; }
      .self { fill: #9198a1; }
      .may { fill: #58a6ff; }
    }
  </style>
  <rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" />
  ${[...bands, ...lines, ...rows].join('\n  ')}
</svg>
`;

if (!process.argv.includes('--check')) writeFileSync(target, svg);
else if (readFileSync(target, 'utf8') !== svg) {
  console.error('docs/images/rooms.svg is not what .dependency-cruiser.mjs says: run `npm run rooms`.');
  process.exitCode = 1;
}
