/** Three significant digits. */
export function number(value) {
  if (value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1_000) return String(value);
  if (size >= 1_000) return Math.round(value).toLocaleString('en').replaceAll(',', ' ');
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

export const times = (value) => (value === undefined ? '–' : `${number(value)} ×`);
export const percent = (value) => (value === undefined ? '–' : `${number(value * 100)} %`);

export function table(head, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, index) => (index === 0 ? '---' : '--:'))), ...rows.map(line)].join('\n');
}
