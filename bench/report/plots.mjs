import * as echarts from 'echarts';
import { CONTESTANTS } from '../contestants/index.mjs';
import { number } from './format.mjs';

const WIDTH = 860;
/**
 * The colors of the chart, and their replacements on a dark page: a style sheet in the file switches between the two.
 */
const INK = { '#1f2328': '#e6edf3', '#59636e': '#9198a1', '#d1d9e0': '#3d444d' };
const [TEXT, FAINT, LINES] = Object.keys(INK);
/** Red, green and blue. */
const OURS = [47, 129, 247];
const BASELINE = [139, 148, 158];
const PEER = [212, 121, 58];
/** The bars of one contestant, from top to bottom. */
const STRENGTHS = [1, 0.6, 0.35];

/** One bar for each contestant and figure. `of`: the figures by legend. */
const PLOTS = [
  {
    name: 'uncontended',
    title: 'Uncontended: turns a second, as a multiple of the raw client',
    series: [
      ['one at a time', 'one-at-a-time', ({ rateToRaw }) => rateToRaw],
      ['200 in flight', '200-in-flight', ({ rateToRaw }) => rateToRaw],
    ],
    better: 'longer is better',
  },
  {
    name: 'contended-time',
    title: '100 waiters: time for all turns, as a multiple of the raw queue',
    series: [
      ['one process', '1x100-0ms', (figures) => figures['ms.toBaseline']],
      ['4 processes', '4x25-0ms', (figures) => figures['ms.toBaseline']],
    ],
    better: 'shorter is better; peers whose releaser takes the lock again save the switch',
  },
  {
    name: 'contended-switches',
    title: '100 waiters: how often a second the lock goes to another waiter',
    series: [
      ['one process', '1x100-0ms', ({ switchesPerSecond }) => switchesPerSecond],
      ['4 processes', '4x25-0ms', ({ switchesPerSecond }) => switchesPerSecond],
    ],
    better: 'longer is better; logarithmic',
    isLogarithmic: true,
  },
  {
    name: 'contended-commands',
    title: '100 waiters, 1 ms hold: commands that the clients send for one turn',
    series: [
      ['one process', '1x100-1ms', ({ commands }) => commands],
      ['4 processes', '4x25-1ms', ({ commands }) => commands],
    ],
    better: 'shorter is better; logarithmic',
    isLogarithmic: true,
  },
  {
    name: 'fairness',
    title: '4 processes × 25 waiters, 1 ms hold: waiting, in ms',
    series: [
      ['median wait', '4x25-1ms', ({ p50Ms }) => p50Ms],
      ['longest wait', '4x25-1ms', ({ longestWaitMs }) => longestWaitMs],
    ],
    better: 'the closer the two, the fairer; logarithmic',
    isLogarithmic: true,
  },
  {
    name: 'wake-up',
    title: 'Wake-up by another process, in ms after the release',
    series: [
      ['p50', 'wake-up', ({ p50Ms }) => p50Ms],
      ['p99', 'wake-up', ({ p99Ms }) => p99Ms],
    ],
    better: 'shorter is better; logarithmic',
    isLogarithmic: true,
  },
  {
    name: 'redlock',
    title: 'Redlock of 5: p50 of acquire and release, as a multiple of the raw quorum',
    series: [0, 1, 2].map((stopped) => [`${stopped} stopped`, 'redlock', (figures) => figures[`${stopped}.p50ToRaw`]]),
    better: 'shorter is better; no bar: a turn never ends',
  },
];

/** @returns name and SVG text of every plot whose scenarios ran; readable on a light and on a dark page */
export function plots({ scenarios }) {
  return PLOTS.filter(({ series }) => series.every(([, scenario]) => scenarios[scenario])).map((plot) => {
    const ids = Object.keys(scenarios[plot.series[0][1]]).filter((id) => id !== 'no-lock');
    const rows = ids.map((id) => ({ id, title: CONTESTANTS[id].title }));
    return [plot.name, draw(plot, rows, scenarios)];
  });
}

function draw({ title, series, better, isLogarithmic }, rows, scenarios) {
  const height = 110 + rows.length * (10 + 14 * series.length);
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height });
  const values = series.flatMap(([, scenario, of]) => rows.map(({ id }) => of(scenarios[scenario][id] ?? {})));
  const origin = 10 ** Math.floor(Math.log10(Math.min(...values.filter((value) => value > 0))));
  chart.setOption({
    animation: false,
    backgroundColor: 'transparent',
    textStyle: { fontFamily: 'system-ui, sans-serif', color: TEXT },
    title: {
      left: 0,
      text: title,
      subtext: `from top to bottom: ${series.map(([name]) => name).join(', ')}; ${better}`,
      textStyle: { color: TEXT, fontSize: 16 },
      subtextStyle: { color: FAINT, fontSize: 12 },
    },
    grid: { left: 200, right: 80, top: 70, bottom: 30 },
    xAxis: {
      type: isLogarithmic ? 'log' : 'value',
      ...(isLogarithmic && { min: origin, startValue: origin }),
      axisLabel: { color: FAINT, formatter: number },
      splitLine: { lineStyle: { color: LINES } },
    },
    yAxis: {
      type: 'category',
      inverse: true,
      data: rows.map((row) => row.title),
      axisLabel: { color: TEXT, fontSize: 13 },
      axisLine: { lineStyle: { color: LINES } },
      axisTick: { show: false },
    },
    series: series.map(([name, scenario, of], index) => ({
      name,
      type: 'bar',
      barMaxWidth: 12,
      label: { show: true, position: 'right', color: FAINT, fontSize: 11, formatter: ({ value }) => number(value) },
      data: rows.map(({ id }) => ({
        value: of(scenarios[scenario][id] ?? {}),
        itemStyle: { color: `rgba(${colour(id).join(',')},${STRENGTHS[index]})`, borderRadius: 2 },
      })),
    })),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return withDarkInk(svg);
}

function colour(id) {
  if (id === 'library') return OURS;
  return id.startsWith('raw') ? BASELINE : PEER;
}

function withDarkInk(svg) {
  const rules = Object.entries(INK).flatMap(([light, dark]) => [
    `[fill="${light}"]{fill:${dark}}`,
    `[stroke="${light}"]{stroke:${dark}}`,
  ]);
  const style = `<style>@media (prefers-color-scheme:dark){${rules.join('')}}</style>`;
  return `${svg.replace(/<svg[^>]*>/, (tag) => `${tag}\n${style}`)}\n`;
}
