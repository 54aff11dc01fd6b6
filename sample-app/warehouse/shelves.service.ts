import { Injectable, NotFoundException } from '@nestjs/common';
import { FencesService } from './fences.service.js';

/** Deliberately naive: what is written is kept, whatever it was meanwhile. */
@Injectable()
export class ShelvesService {
  readonly #boxes = new Map<string, number>();

  constructor(private readonly fences: FencesService) {}

  get skus(): string[] {
    return [...this.#boxes.keys()];
  }

  /** Puts up a new product, or fills up its shelf. */
  fill(sku: string, boxes: number): void {
    this.#boxes.set(sku, boxes);
  }

  read(sku: string): number {
    const boxes = this.#boxes.get(sku);
    if (boxes === undefined) throw new NotFoundException(`There is no ${sku}.`);
    return boxes;
  }

  write(sku: string, boxes: number, fencingToken?: number): void {
    this.read(sku);
    this.fences.check(sku, fencingToken);
    this.#boxes.set(sku, boxes);
  }
}
