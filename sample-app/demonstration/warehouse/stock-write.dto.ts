import { IsInt, Min } from 'class-validator';

export class StockWrite {
  @IsInt()
  @Min(0)
  readonly boxes!: number;
}
