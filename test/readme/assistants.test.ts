import { existsSync, readdirSync } from 'node:fs';
import { Test } from '@nestjs/testing';
import { load } from 'js-yaml';
import { LockService } from 'nest-redis-lock';
import { LockBench, LockTestingModule } from 'nest-redis-lock/testing';
import { beforeEach, describe, expect, it } from 'vitest';
import { call } from '../cli/call.js';
import { Gate } from '../support/gate.js';
import { exampleWith, modulesOf, read, REASONS, root, SKILLS } from './compile.js';

const { files, scripts } = JSON.parse(read('package.json')) as { files: string[]; scripts: Record<string, string> };

/** Every word of the exports of the package: names of options and members, and their possible values. */
const EXPORTED = new Set(
  readdirSync(`${root}etc`).flatMap((report) => read(`etc/${report}`).match(/[A-Za-z_$][\w$]*/g) ?? []),
);
/** Names of the language and of other packages that the skills mention. */
const OF_OTHERS: Readonly<Record<string, readonly string[]>> = {
  'use-nest-redis-lock': [
    ...['ioredis', 'redis', 'pg', 'mysql2', 'enableShutdownHooks', 'app', 'locks', 'work', 'Transactional', 'tsconfig'],
    ...['json', 'new', 'b', 'experimentalDecorators', 'emitDecoratorMetadata'],
  ],
  'migrate-from-redlock': [
    ...['using', 'lock', 'disposer', 'unlock', 'bluebird', 'ExecutionError', 'ResourceLockedError', 'clientError', 'a'],
    ...['Redlock', 'retryCount', 'locks', 'work', 'new', 'b', 'c', 'try', 'catch', 'finally', 'package', 'json'],
  ],
  'diagnose-locks': ['locks', 'await', 'host', 'pid', 'noeviction', 'doctor', 'REDIS_URL'],
};

/** The text in code font, outside of blocks. */
function codeOf(text: string): string[] {
  return [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`]+)`(?!`)/g)].map(([, code]) => code!);
}

describe.each(SKILLS)('%s', (page) => {
  const text = read(page);
  const [, folder] = page.split('/') as [string, string];

  it('is in the package', () => {
    expect(files).toContain(page);
  });

  it('begins like all Agent Skills, with the name of its folder, and when to use it', () => {
    const [, frontmatter] = /^---\n(.*?)\n---\n/s.exec(text)!;
    const { name, description, ...others } = load(frontmatter!) as Record<string, string>;
    expect(name).toBe(folder);
    expect(name).toMatch(/^[a-z\d]+(-[a-z\d]+)*$/);
    expect(name!.length).toBeLessThanOrEqual(64);
    expect(description).toMatch(/ Use it when /);
    expect(description!.length).toBeLessThanOrEqual(1_024);
    expect(others).toEqual({ license: 'MIT' });
  });

  it('can be read at once: it has at most 125 lines', () => {
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(125);
  });

  it('names no option, member or export that the package does not have', () => {
    const withoutTheirs = text.replaceAll(/^\| there [^]*?\n\n/gm, (table) => table.replaceAll(/^\|[^|]*\|/gm, '|'));
    const names = codeOf(withoutTheirs)
      .filter((code) => !/^(--|np[mx] )|\//.test(code))
      .flatMap((code) => code.replaceAll(/'[^']*'|\S*\{\d\}/g, '').match(/[A-Za-z_$][\w$]*/g) ?? []);
    expect(names.length).toBeGreaterThan(20);
    expect(names.filter((name) => !EXPORTED.has(name) && !OF_OTHERS[folder]!.includes(name))).toEqual([]);
  });

  it('shows no command that the command line would refuse', async () => {
    const commands = codeOf(text).filter((code) => code.startsWith('npx nest-redis-lock'));
    const codes = commands.map(async (command) => {
      const argv = command.replaceAll("'", '').split(' ').slice(2);
      const { code } = await call(argv, { env: { REDIS_URL: 'redis://127.0.0.1:1' }, connectMs: 50 });
      return { command, code };
    });
    // Nothing listens there: a command that was understood ends with that.
    expect(await Promise.all(codes)).toEqual(commands.map((command) => ({ command, code: 69 })));
  });
});

describe('the skill to use the package', () => {
  interface Payments {
    pay(order: string): Promise<boolean>;
    refund(order: string, askBank: (signal: AbortSignal) => Promise<void>): Promise<void>;
  }
  let ran = 0;

  describe('has a test, which', async () => {
    beforeEach(() => void ran++);
    await import(/* @vite-ignore */ modulesOf('skills/use-nest-redis-lock/SKILL.md')[1]!);
  });

  it('has one test that ran', () => {
    expect(ran).toBe(1);
  });

  it('has an application in which a payment waits for the refund of its order, and a loss ends it', async () => {
    const page = 'skills/use-nest-redis-lock/SKILL.md';
    const { PaymentsModule, PaymentsService } = await exampleWith<Record<string, new () => Payments>>(page, '@Locked');
    const bench = new LockBench();
    const testing = await Test.createTestingModule({ imports: [PaymentsModule!] })
      .overrideProvider(LockService)
      .useValue(bench.locks)
      .compile();
    const payments = testing.get<Payments>(PaymentsService!);
    expect(await payments.pay('17')).toBe(true);
    const gate = new Gate();
    const refunded = payments.refund('17', () => gate.opened);
    const paid = payments.pay('17');
    gate.open();
    await refunded;
    expect(await paid).toBe(true);

    const lost = payments.refund('17', async (signal) => {
      await bench.lose('order:17');
      expect(signal.aborted).toBe(true);
    });
    await expect(lost).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(await payments.pay('17')).toBe(false);
    await testing.close();
  });
});

describe('the skill to move from redlock', () => {
  it('has a service that returns what its work returned, and refuses it when the lock is lost', async () => {
    const { Audits } = await exampleWith<{
      Audits: new (...args: never[]) => { audit(account: string, read: () => Promise<number>): Promise<number> };
    }>('skills/migrate-from-redlock/SKILL.md', 'class Audits');
    const testing = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      providers: [Audits],
    }).compile();
    const audits = testing.get(Audits);
    expect(await audits.audit('a', async () => 7)).toBe(7);
    const lost = audits.audit('a', async () => {
      await testing.get(LockBench).lose('account:a');
      return 8;
    });
    await expect(lost).rejects.toMatchObject({ code: 'LOCK_LOST' });
    await testing.close();
  });
});

describe('the skill to diagnose locks', () => {
  const page = 'skills/diagnose-locks/SKILL.md';

  it('explains each error that docs/errors.md has, also in its description, and each reason of a loss', () => {
    const text = read(page);
    const [, description] = /^description: (.*?)\nlicense/ms.exec(text)!;
    const explained = [...text.matchAll(/^\| `(\w+)`(?: +\| `(\w+Error)`)?/gm)].map(([, name, error]) => error ?? name);
    const errors = [...read('docs/errors.md').matchAll(/^\| `(\w+Error)` +\|/gm)].map(([, error]) => error!);
    expect(errors.length).toBeGreaterThan(5);
    expect(explained).toEqual(expect.arrayContaining([...errors, ...Object.keys(REASONS)]));
    expect(errors.filter((error) => !description!.includes(error))).toEqual([]);
  });

  it('has a function that shows who holds a lock', async () => {
    const { whoHolds } = await exampleWith<{ whoHolds(locks: LockService, key: string): Promise<string | null> }>(
      page,
      'whoHolds',
    );
    const { locks } = new LockBench();
    expect(await whoHolds(locks, 'order:7')).toBeNull();
    await locks.withLock('order:7', async () => {
      expect(await whoHolds(locks, 'order:7')).toMatch(
        new RegExp(`^\\S+ ${process.pid} \\([0-9a-f]+\\), \\d+ ms left; waiting: 0 here, 0 processes$`),
      );
    });
  });
});

describe.each(['AGENTS.md', 'CONTRIBUTING.md', 'test/README.md'])('%s', (page) => {
  it('names no script that package.json does not have', () => {
    const named = [...read(page).matchAll(/\bnpm run ([\w:]+)/g)].map(([, script]) => script!);
    expect(named.length).toBeGreaterThan(2);
    expect(named.filter((script) => !Object.hasOwn(scripts, script))).toEqual([]);
  });

  it('shows no test that is not there', () => {
    const named = [...read(page).matchAll(/(?<!:)\b(test\/[\w./-]*\w)/g)].map(([, path]) => path!);
    expect(named.length).toBeGreaterThan(1);
    expect(named.filter((path) => !existsSync(root + path))).toEqual([]);
  });
});

describe('AGENTS.md', () => {
  const text = read('AGENTS.md');

  it('is read before each task: it has at most 60 lines', () => {
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(60);
  });
});
