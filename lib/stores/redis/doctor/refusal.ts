import { LockOptionsError, LockUnavailableError, NodeError, type LockError } from '../../../api/errors.js';
import type { FindingCode, RedisFinding, RedisKind } from './diagnosis.js';

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
export function refusalOf(backend: RedisKind, findings: readonly RedisFinding[]): LockError | undefined {
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
