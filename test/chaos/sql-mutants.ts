import type { PostgresStatement, Statement } from './library.js';
import type { Rule } from './history-checker.js';
import type { Library } from './mutant.js';

interface SqlMutant {
  what: string;
  /** Breaks the library where it is loaded, before locks are opened. */
  inject(library: Library): void;
  /** How long its run has faults, and the rule that catches it then. */
  seconds: number;
  caughtBy: Rule;
}

/** The store of PostgreSQL, which is not simulated, broken in one way each. */
export const SQL_MUTANTS: Readonly<Record<string, SqlMutant>> = {
  'row-given-by-anyone': {
    what: 'a release frees the lock in its row, even for another owner',
    inject(library) {
      rewrite(library, {
        turn: ['l.give = l.holder', 'l.give IS NOT NULL'],
        give: ['resource_lock_value = $2::text', '$2::text IS NOT NULL'],
      });
    },
    seconds: 10,
    caughtBy: 'overlapping holders',
  },
  'row-taken-early': {
    what: 'a row is taken a little before its lock expires',
    inject(library) {
      rewrite(library, {
        take: ['expires_at <= clock_timestamp()', `expires_at <= clock_timestamp() + interval '200 ms'`],
        turn: ['l.expires_at > clock.now', `l.expires_at > clock.now + interval '200 ms'`],
      });
    },
    seconds: 20,
    caughtBy: 'overlapping holders',
  },
  'fence-not-raised': {
    what: 'the token of a row stays as it is when its lock is taken or handed over',
    inject(library) {
      rewrite(library, {
        take: ['fence = greatest(', 'fence = least(fence, '],
        turn: ['ELSE d.fence END, d.us) AS first_token', 'ELSE d.fence END, d.us) * 0 + d.fence AS first_token'],
      });
    },
    seconds: 10,
    caughtBy: 'token given twice',
  },
  'guard-that-guards-nothing': {
    what: 'a guard looks at no row',
    inject({ MysqlNode, PostgresNode }) {
      MysqlNode.prototype.guard = () => ({ dialect: 'mysql', text: 'SELECT 1', values: [] });
      PostgresNode.prototype.guard = () => ({ dialect: 'postgres', text: 'SELECT 1', values: [] });
    },
    seconds: 20,
    caughtBy: 'lost update',
  },
};

/**
 * Changes the texts of statements, by their names, before they are sent.
 * @throws Error in the process that sends a statement whose text has changed in the library
 */
function rewrite(
  { StatementRunner: { prototype } }: Library,
  changes: Readonly<Record<string, readonly [from: string, to: string]>>,
): void {
  const broken = new Map<Statement, PostgresStatement>();
  const brokenOf = (statement: PostgresStatement): PostgresStatement => {
    const { name, text } = statement;
    const [from, to] = changes[name] ?? ['', ''];
    if (!text.includes(from)) throw new Error(`${name} has no ${from}: correct the mutant.`);
    const copy = Object.create(Object.getPrototypeOf(statement) as object) as object;
    return Object.assign(copy, statement, { text: text.replaceAll(from, to) });
  };
  const { run } = prototype;
  prototype.run = function (statement, ...operation) {
    if (!broken.has(statement)) broken.set(statement, brokenOf(statement as PostgresStatement));
    return Reflect.apply(run, this, [broken.get(statement)!, ...operation]) as void;
  };
}
