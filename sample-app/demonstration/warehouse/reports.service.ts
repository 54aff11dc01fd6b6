import { Injectable } from '@nestjs/common';
import { SqlFence, StaleTokenError } from 'nest-redis-lock';
import { DatabaseService } from './database.service.js';
import { WritesService } from './writes.service.js';

export interface Report {
  boxes: Record<string, number>;
  /** Process id of the instance that wrote the report. */
  by: number;
}

/** Reports are only added, so no row of theirs could remember a token. The token has a table of its own. */
@Injectable()
export class ReportsService {
  constructor(
    private readonly database: DatabaseService,
    private readonly writes: WritesService,
  ) {}

  async all(): Promise<Report[]> {
    const { rows } = await this.database.query<Report>('SELECT boxes, by FROM reports ORDER BY id');
    return rows;
  }

  /** @throws StaleTokenError */
  async file({ boxes, by }: Report, fencingToken: number): Promise<void> {
    const accepted = await this.database.transaction(async (query) => {
      // From here to the end of the transaction, the row of the token is locked: no other write can come in between.
      if (!(await new SqlFence(query).raise('reports', fencingToken))) return false;
      await query('INSERT INTO reports (boxes, by) VALUES ($1, $2)', [boxes, by]);
      return true;
    });
    this.writes.writes$.next({ resource: 'reports', accepted });
    if (!accepted) throw new StaleTokenError(fencingToken, { resource: 'reports' });
  }
}
