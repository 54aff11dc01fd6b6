import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Channel, Ear, Refused } from '../../lib/stores/node/ear.js';

/** An ear whose connections and messages do what the test says, with a log of its actions. */
class TestEar extends Ear {
  readonly log: string[] = [];
  /** The fates of the messages that it sends to itself; the last one repeats. */
  readonly echoes: ('heard' | 'lost' | 'refused' | 'broken')[] = ['heard'];
  protected override readonly onlyChannel = new Channel(
    async (text) => {
      const echo = this.echoes.length > 1 ? this.echoes.shift() : this.echoes[0];
      this.log.push('echo');
      if (echo === 'refused') throw new Refused(() => this.log.push('reports'));
      if (echo === 'broken') throw new Error('broken');
      if (echo === 'heard') this.onlyChannel.hear(text);
      return echo === 'heard' ? 1 : 0;
    },
    (text) => this.log.push(text),
  );
  protected override readonly pauseMs = 5_000;

  constructor(protected override readonly mustProve = false) {
    super();
  }

  protected listen() {
    this.log.push('connects');
    return { close: () => void this.log.push('closes') };
  }

  protected onChange(): void {
    this.log.push(this.isOpen() ? 'open' : 'not open');
  }

  protected override onNothingDelivered(): void {
    this.log.push('deaf');
  }

  override opened = () => super.opened();
  override broken = () => super.broken();
  override end = () => super.end();
  override refuse = (report: () => void) => super.refuse(report);
}

const passes = (ms: number) => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(performance, 'now').mockImplementation(() => Date.now());
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** An ear that listens, and has heard nothing lately. */
async function listening(mustProve = false) {
  const ear = new TestEar(mustProve);
  ear.open();
  await ear.opened();
  await passes(1_000);
  ear.log.length = 0;
  return ear;
}

it('An ear connects once, however often it is asked to listen, and reports when it is open', async () => {
  const ear = new TestEar();
  for (let asked = 0; asked < 2; asked++) {
    ear.check(); // there is nothing to check yet
    ear.open();
    await passes(1_000);
  }
  expect([ear.isOpen(), ear.log]).toEqual([false, ['connects']]);
  await ear.opened();
  ear.open();
  expect([ear.isOpen(), ear.log]).toEqual([true, ['connects', 'open']]);
});

it('An ear that is checked twice sends one message to itself, and can be checked again once it has heard the message', async () => {
  const ear = await listening();
  ear.check();
  ear.check();
  expect([ear.isOpen(), ear.log]).toEqual([true, ['echo']]);
  await passes(0);
  ear.check(); // it has heard one a moment ago
  expect(ear.log).toEqual(['echo']);
  await passes(500);
  ear.check();
  expect(ear.log).toEqual(['echo', 'echo']);
});

it.each([
  ['lost', ['echo', 'closes', 'not open']],
  ['broken', ['echo']],
  ['refused', ['echo', 'closes', 'not open', 'reports']],
] as const)('An ear whose message to itself is %s acts on that', async (echo, log) => {
  const ear = await listening();
  ear.echoes[0] = echo;
  ear.check();
  await passes(0);
  expect(ear.log).toEqual(log);
});

it.each(['lost', 'refused'] as const)(
  'An ear that has reconnected ignores that an earlier message was %s',
  async (echo) => {
    const ear = await listening();
    ear.echoes[0] = echo;
    ear.check();
    ear.broken();
    void ear.opened();
    await passes(1_000);
    expect([ear.isOpen(), ear.log]).toEqual([true, ['echo', 'not open', 'open']]);
  },
);

it('An ear that has to prove that it hears is open when the second message to itself is heard', async () => {
  const ear = new TestEar(true);
  ear.echoes.unshift('lost');
  ear.open();
  await ear.opened();
  expect(ear.log).toEqual(['connects', 'echo', 'echo', 'open']);
});

it.each([
  ['lost', ['connects', 'echo', 'echo', 'closes', 'deaf']],
  ['broken', ['connects', 'echo', 'closes']],
  ['refused', ['connects', 'echo', 'closes', 'reports']],
] as const)('An ear that has to prove that it hears is not open when its messages are %s', async (echo, log) => {
  const ear = new TestEar(true);
  ear.echoes[0] = echo;
  ear.open();
  await ear.opened();
  expect([ear.isOpen(), ear.log]).toEqual([false, log]);
});

it('An ear whose connection ends before it has proved that it hears is not open', async () => {
  const ear = new TestEar(true);
  ear.open();
  const opened = ear.opened();
  ear.end();
  await opened;
  expect([ear.isOpen(), ear.log]).toEqual([false, ['connects', 'echo', 'closes']]);
});

it('An ear that was refused pauses, must then prove once that it hears, and only then reports the next refusal', async () => {
  const ear = await listening();
  const report = () => void ear.log.push('reports');
  ear.refuse(report);
  await passes(4_000);
  ear.open();
  await passes(1_000);
  expect(ear.log).toEqual(['closes', 'not open', 'reports']);
  ear.log.length = 0;
  ear.open();
  ear.refuse(report);
  expect(ear.log).toEqual(['connects', 'closes']);
  for (const [log, ms] of [
    [['connects', 'echo', 'open', 'closes', 'not open'], 5_000],
    [['connects', 'open'], 500],
  ] as const) {
    ear.log.length = 0;
    await passes(ms);
    ear.open();
    await ear.opened();
    if (ms === 5_000) ear.end();
    expect(ear.log).toEqual(log);
  }
  ear.refuse(report);
  expect(ear.log.at(-1)).toBe('reports');
});

it('An ear that is closed reports nothing, and does not connect again', async () => {
  const ear = await listening();
  ear.close();
  await passes(60_000);
  ear.open();
  expect([ear.isOpen(), ear.log]).toEqual([false, ['closes']]);
});
