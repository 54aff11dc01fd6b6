import { IsInt, IsPositive, Matches } from 'class-validator';
import { SKU } from '../products/sku.js';

export class Delivery {
  @Matches(SKU)
  readonly sku!: string;

  @IsInt()
  @IsPositive()
  readonly boxes!: number;
}
