import { Injectable, NotFoundException } from '@nestjs/common';
import { assertFenced, fencedUpdate } from 'nest-redis-lock';
import { DatabaseService } from './database.service.js';
import { WritesService } from './writes.service.js';

/** The token of a write without a lock. It is accepted until the first write under a lock. */
const NO_LOCK = 0;

/**
 * Deliberately naive: it overwrites the number without looking at it. The only check is that the row has not seen a newer fencing
 * token. The tokens of a key only grow, so a write with an older token comes from a former holder.
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

  /** Adds a product, or sets the number of its boxes. */
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
   * @throws StaleTokenError if the token is too old, or is missing although the row has already seen one
   */
  async write(sku: string, boxes: number, fencingToken = NO_LOCK): Promise<void> {
    await this.read(sku); // products are never removed: if the update below changes no row, the row has seen a newer token
    const statement = fencedUpdate({ table: 'stock', where: { sku }, set: { boxes }, fence: fencingToken });
    const { rows } = await this.database.query(statement.text, statement.values);
    this.writes.writes$.next({ resource: sku, accepted: rows.length > 0 });
    assertFenced(rows.length, statement);
  }
}
