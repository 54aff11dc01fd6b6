import { Injectable, NotFoundException } from '@nestjs/common';
import { assertFenced, fencedUpdate } from 'nest-redis-lock';
import { DatabaseService } from './database.service.js';
import { WritesService } from './writes.service.js';

/** Whoever never took a lock writes with this token: accepted until the first write under a lock. */
const NO_LOCK = 0;

/**
 * Deliberately naive but for one thing: what is written is kept, whatever it was meanwhile, unless the row has seen a
 * newer fencing token. Those of a key only grow, so an older one is that of a former holder.
 */
@Injectable()
export class ShelvesService {
  constructor(
    private readonly database: DatabaseService,
    private readonly writes: WritesService,
  ) {}

  async skus(): Promise<string[]> {
    const { rows } = await this.database.query<{ sku: string }>('SELECT sku FROM stock ORDER BY sku');
    return rows.map(({ sku }) => sku);
  }

  /** Puts up a new product, or fills up its shelf. */
  async fill(sku: string, boxes: number): Promise<void> {
    await this.database.query(
      'INSERT INTO stock (sku, boxes) VALUES ($1, $2) ON CONFLICT (sku) DO UPDATE SET boxes = EXCLUDED.boxes',
      [sku, boxes],
    );
  }

  /** @throws NotFoundException */
  async read(sku: string): Promise<number> {
    const { rows } = await this.database.query<{ boxes: number }>('SELECT boxes FROM stock WHERE sku = $1', [sku]);
    if (!rows[0]) throw new NotFoundException(`There is no ${sku}.`);
    return rows[0].boxes;
  }

  /**
   * @throws NotFoundException
   * @throws StaleTokenError for a token that is too old, or for none where there was one before
   */
  async write(sku: string, boxes: number, fencingToken = NO_LOCK): Promise<void> {
    await this.read(sku); // no product is ever removed: below, a row that is not changed has seen a newer token
    const statement = fencedUpdate({ table: 'stock', where: { sku }, set: { boxes }, fence: fencingToken });
    const { rows } = await this.database.query(statement.text, statement.values);
    this.writes.writes$.next({ resource: sku, accepted: rows.length > 0 });
    assertFenced(rows.length, statement);
  }
}
