import { DIAGNOSIS_TIMEOUT_MS, type LockDiagnosis, type NodeDiagnosis } from './diagnosis.js';
import { findingsOf } from './findings.js';

/** What can check its servers. */
export interface Examined {
  /** Settles within `timeoutMs`, and never rejects. */
  probe(timeoutMs: number): Promise<NodeDiagnosis[]>;
}

/** Checks the servers of a backend, and makes a report of it. Never rejects. */
export async function diagnose(
  connection: string,
  backend: LockDiagnosis['backend'],
  servers: Examined,
): Promise<LockDiagnosis> {
  const nodes = await servers.probe(DIAGNOSIS_TIMEOUT_MS);
  return { connection, backend, checkedAt: new Date().toISOString(), nodes, findings: findingsOf(backend, nodes) };
}
