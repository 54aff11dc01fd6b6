import { LockUnavailableError, NodeError, type LockError } from '../../../api/errors.js';
import type { BackendReport } from '../../../core/backend/report.js';
import type { FindingCode, RedisFinding, RedisKind } from './diagnosis.js';
import { refusalOf } from '../../node/findings.js';
import { findingsOf } from './findings.js';
import type { NodeProbe } from './probe.js';
import { summaryOf, whereOf } from './summary.js';

/** Checks all servers of a backend at once, and reports on them within `timeoutMs`. Never rejects. */
export async function reportOn(
  backend: RedisKind,
  servers: readonly Pick<NodeProbe, 'run'>[],
  timeoutMs: number,
): Promise<BackendReport> {
  const examined = (await Promise.all(servers.map((server) => server.run(timeoutMs)))).flat();
  const findings = findingsOf(backend, examined);
  const nodes = examined.map((node) => ({ ...node, summary: summaryOf(node) }));
  return { backend, where: whereOf(backend, examined), nodes, findings, refusal: reasonAgainst(backend, findings) };
}

/** The codes of findings that prevent the application from starting. */
const UNSAFE: ReadonlySet<FindingCode> = new Set([
  'same-server',
  'not-independent',
  'writable-replica',
  'active-replica',
  'wrong-database',
]);

/** Returns why the application must not start: two callers could hold one lock, or the only server is a read-only replica. */
function reasonAgainst(backend: RedisKind, findings: readonly RedisFinding[]): LockError | undefined {
  const unsafe = refusalOf(findings, UNSAFE);
  const useless = backend === 'redis' ? findings.filter(({ code }) => code === 'read-only-replica') : [];
  if (unsafe || useless.length === 0) return unsafe;
  const causes = useless.map(({ node = '', message }) => new NodeError(node, message.slice(node.length + 1)));
  return new LockUnavailableError(useless.map(({ message }) => message).join(' '), undefined, causes);
}
