import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import {
  formatDiagnosis,
  LockContendedError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  LockUnavailableError,
  NodeError,
  StaleTokenError,
} from 'nest-redis-lock';
import { printable } from '../../lib/api/printable.js';
import { checkKey } from '../../lib/core/keys/key.js';
import { answeredTooLate, closed } from '../../lib/core/waiting/refusals.js';
import { clientOf, redisServer } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';

/** A line break, an escape of terminals, a turn of the text, and what shows nothing. */
const FORGED = 'a\r\n[Nest] LOG all is well\u001b[2J\u0085\u2028\u202e\u2066\u200b\u2060\ufeff\u{e0041}\ud800';
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;

describe('a text that a stranger may have chosen', () => {
  it('is printed as one line that only shows it, whatever it holds', () => {
    expect(printable(FORGED)).toBe(
      'a\\u{d}\\u{a}[Nest] LOG all is well\\u{1b}[2J\\u{85}\\u{2028}\\u{202e}\\u{2066}\\u{200b}\\u{2060}\\u{feff}\\u{e0041}\\u{d800}',
    );
    expect(printable('a\u034f\u3164\ufe0fb')).toBe('a\\u{34f}\\u{3164}\\u{fe0f}b');
  });

  it.each(['order:17', 'заказ:17', '注文:{17}', 'طلب:17', '😀 "quoted" %3A/\\', 'a'.repeat(200)])(
    'is printed as it is where that is harmless: %s',
    (text) => {
      expect(printable(text)).toBe(text);
    },
  );

  it('is cut where it is too long, between characters, and says how much is left out', () => {
    expect(printable('a'.repeat(5_000_000))).toBe(`${'a'.repeat(200)}… (4999800 more characters)`);
    expect(printable('😀'.repeat(4), 3)).toBe('😀… (6 more characters)');
    expect(printable('a'.repeat(5_000), Infinity)).toHaveLength(5_000);
  });

  it('does not forge the message of any error, whose key stays as it is [G585]', () => {
    const holder = { owner: FORGED };
    const node = new NodeError('a:1', FORGED);
    const errors = [
      new LockContendedError(FORGED, 10, { holder, holding: [FORGED] }),
      LockUnavailableError.from('acquired', FORGED, [node]),
      LockUnavailableError.ofList([node]),
      new LockLostError(FORGED, 'stolen'),
      new LockSelfDeadlockError(FORGED),
      LockSelfDeadlockError.underLeader(FORGED),
      new StaleTokenError(7, { key: FORGED }),
      answeredTooLate(FORGED, 10, 20),
      closed(FORGED),
      new LockOptionsError(`there is no option ${FORGED}`),
      thrownBy(() => checkKey(`}${FORGED}`)),
      thrownBy(() => checkKey(FORGED.repeat(100))),
    ];
    for (const error of errors) {
      expect(error.message).not.toMatch(UNSAFE);
      expect([undefined, FORGED]).toContain((error as LockOptionsError).key);
    }
    expect(errors[0]!.stack).not.toMatch(UNSAFE);
    expect(node.message).not.toMatch(UNSAFE);
  });

  it('does not forge a line of a diagnosis, and does not make it long', () => {
    const text = formatDiagnosis({
      registration: 'default',
      backend: 'redis',
      where: 'on one Redis',
      checkedAt: '',
      nodes: [{ name: 'a:1', reachable: false, summary: FORGED + 'x'.repeat(1_000_000) }],
      findings: [{ severity: 'error', code: 'x', message: FORGED + 'x'.repeat(1_000_000) }],
    });
    expect(text.split('\n')).toHaveLength(3);
    expect(text.replaceAll('\n', '')).not.toMatch(UNSAFE);
    expect(text.length).toBeLessThan(10_000);
  });

  it('makes no long message of the value of another program, however long that is [G586]', async () => {
    const redis = await redisServer();
    const locks = await openLocks({ redis: redis.url });
    const value = 'x'.repeat(5_000_000);
    await clientOf(redis).set('lock:{order:17}', value);
    const error = await locks.acquire('order:17', { waitMs: 0 }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockContendedError);
    const { message, stack, holder } = error as LockContendedError;
    expect(message).toMatch(/is held by owner "x{200}… \(4999800 more characters\)" \(its lease runs without end\)/);
    expect(message.length).toBeLessThan(1_000);
    expect(stack!.length).toBeLessThan(1_000);
    expect(holder!.owner).toHaveLength(5_000_000);
  });

  it('makes no long message where a server answers with one', () => {
    const { message, problem } = new NodeError('a:1', `ERR ${'x'.repeat(5_000_000)}`);
    expect(message.length).toBeLessThan(1_000);
    expect(problem.length).toBeLessThan(1_000);
  });
});

it('no template of the library has a text in quotes that is not made printable', () => {
  const lib = fileURLToPath(new URL('../../lib/', import.meta.url));
  // The page escapes its address for HTML, a statement quotes names for SQL.
  const others = ['api/printable.ts', 'page/page-text.ts', 'fencing/fenced-statement.ts'];
  const files = readdirSync(lib, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !others.includes(name.replaceAll('\\', '/')))
    .map((name) => ({ name, lines: readFileSync(lib + name, 'utf8').split('\n') }));
  expect(files.length).toBeGreaterThan(150);
  const bare = files.flatMap(({ name, lines }) =>
    lines.flatMap((line, at) => (/`[^`]*"\$\{/.test(line) ? [`${name}:${at + 1}: use quoted()`] : [])),
  );
  expect(bare).toEqual([]);
});

function thrownBy(act: () => void): Error {
  try {
    act();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}
