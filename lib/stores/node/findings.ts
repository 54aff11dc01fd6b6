import type { Finding } from '../../api/diagnosis.js';
import { LockOptionsError } from '../../api/errors.js';

/** What a doctor looks for: by the code of a finding, what to say about a server on which it is found. */
export type Findings<Seen, Code extends string> = {
  readonly [code in Code]?: (seen: Seen) => string | false | undefined;
};

/** What is found on a server, in the order of the table. @param node the name of the server, with which each sentence begins */
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

/** Why the application must not start: on these servers locks would be granted, but two could hold one by the very set-up. */
export function refusalOf(findings: readonly Finding[], unsafe: ReadonlySet<string>): LockOptionsError | undefined {
  const reasons = findings.filter(({ code }) => unsafe.has(code)).map(({ message }) => message);
  return reasons.length > 0 ? new LockOptionsError(reasons.join(' ')) : undefined;
}
