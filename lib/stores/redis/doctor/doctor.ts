import { LockOptionsError, LockUnavailableError, NodeError, type LockError } from '../../../api/errors.js';
import type { BackendReport } from '../../../core/backend/report.js';
import type { FindingCode, RedisFinding, RedisKind } from './diagnosis.js';
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
  return { backend, where: whereOf(backend, examined), nodes, findings, refusal: refusalOf(backend, findings) };
}

const UNSAFE: readonly FindingCode[] = [
  'same-server',
  'not-independent',
  'writable-replica',
  'active-replica',
  'wrong-database',
];

/**
 * Why the application must not start: servers on which locks would be given, but not safely; or a single one that can never
 * give any.
 * @returns a LockOptionsError when two could hold a lock by the very set-up; a LockUnavailableError when the one server is a
 *   replica that refuses writes
 */
function refusalOf(backend: RedisKind, findings: readonly RedisFinding[]): LockError | undefined {
  const unsafe = findings.filter(({ code }) => UNSAFE.includes(code));
  if (unsafe.length > 0) return new LockOptionsError(textOf(unsafe));
  const useless = backend === 'redis' ? findings.filter(({ code }) => code === 'read-only-replica') : [];
  return useless.length > 0 ? new LockUnavailableError(textOf(useless), undefined, useless.map(nodeError)) : undefined;
}

function textOf(findings: readonly RedisFinding[]): string {
  return findings.map(({ message }) => message).join(' ');
}

function nodeError({ node = '', message }: RedisFinding): NodeError {
  return new NodeError(node, message.slice(node.length + 1));
}
