import type { BackendReport } from '../../../core/backend/report.js';
import { findingsOf } from './findings.js';
import type { ExaminedNode, RedisKind } from './diagnosis.js';
import { refusalOf } from './refusal.js';
import { summaryOf, whereOf } from './summary.js';

/** Checks a server, or each master of a Cluster. */
export interface Examiner {
  /** Settles within `timeoutMs`, and never rejects. */
  run(timeoutMs: number): Promise<ExaminedNode[]>;
}

/** Checks the servers of a backend, and reports on them. */
export class Doctor {
  constructor(
    private readonly backend: RedisKind,
    private readonly servers: readonly Examiner[],
  ) {}

  /** Checks all servers at once. Never rejects. */
  async report(timeoutMs: number): Promise<BackendReport> {
    const { backend } = this;
    const examined = (await Promise.all(this.servers.map((server) => server.run(timeoutMs)))).flat();
    const findings = findingsOf(backend, examined);
    const nodes = examined.map((node) => ({ ...node, summary: summaryOf(node) }));
    return { backend, where: whereOf(backend, examined), nodes, findings, refusal: refusalOf(backend, findings) };
  }
}
