import type { Finding } from '../../api/diagnosis.js';
import { LockOptionsError } from '../../api/errors.js';

/** The checks of a doctor. Each returns the message of the finding with that code, or nothing if all is well. */
export type Findings<Seen, Code extends string> = {
  readonly [code in Code]?: (seen: Seen) => string | false | undefined;
};

/** Returns the findings about a server, in the order of the table. @param node the name of the server: each message begins with it */
export function found<Seen, Code extends string>(
  severity: Finding['severity'],
  table: Findings<Seen, Code>,
  node: string,
  seen: Seen,
): (Finding & { code: Code })[] {
  return (Object.keys(table) as Code[]).flatMap((code) => {
    const what = table[code]!(seen);
    return what ? [{ severity, code, node, message: `${node} ${what}` }] : [];
  });
}

/** Returns the reason why the application must not start: on servers set up like this, two callers could hold the same lock. */
export function refusalOf(findings: readonly Finding[], unsafe: ReadonlySet<string>): LockOptionsError | undefined {
  const reasons = findings.filter(({ code }) => unsafe.has(code)).map(({ message }) => message);
  return reasons.length > 0 ? new LockOptionsError(reasons.join(' ')) : undefined;
}
