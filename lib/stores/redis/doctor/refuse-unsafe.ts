import { LockOptionsError, LockUnavailableError, NodeError } from '../../../api/errors.js';
import type { Finding, FindingCode, LockDiagnosis } from './diagnosis.js';

const UNSAFE: readonly FindingCode[] = ['same-server', 'not-independent', 'writable-replica', 'wrong-database'];

/**
 * Refuses servers on which locks would be given, but not safely; and a single one that can never give any.
 * @throws LockOptionsError when two could hold a lock by the very set-up
 * @throws LockUnavailableError when the one server is a replica that refuses writes
 */
export function refuseUnsafe({ backend, findings }: LockDiagnosis): void {
  const unsafe = findings.filter(({ code }) => UNSAFE.includes(code));
  if (unsafe.length > 0) throw new LockOptionsError(unsafe.map(({ message }) => message).join(' '));
  const useless = backend === 'redis' ? findings.filter(({ code }) => code === 'read-only-replica') : [];
  if (useless.length > 0) throw new LockUnavailableError(textOf(useless), undefined, useless.map(nodeError));
}

function textOf(findings: readonly Finding[]): string {
  return findings.map(({ message }) => message).join(' ');
}

function nodeError({ node = '', message }: Finding): NodeError {
  return new NodeError(node, message.slice(node.length + 1));
}
