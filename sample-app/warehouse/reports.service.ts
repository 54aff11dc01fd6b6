import { Injectable } from '@nestjs/common';
import { FencesService } from './fences.service.js';

export interface Report {
  boxes: Record<string, number>;
  /** Process id of the instance that wrote it. */
  by: number;
}

@Injectable()
export class ReportsService {
  readonly #reports: Report[] = [];

  constructor(private readonly fences: FencesService) {}

  get all(): readonly Report[] {
    return this.#reports;
  }

  file(report: Report, fencingToken: number): void {
    this.fences.check('reports', fencingToken);
    this.#reports.push(report);
  }
}
