import { IsInt, IsOptional, Min } from 'class-validator';

export class StockWrite {
  @IsInt()
  @Min(0)
  readonly boxes!: number;

  @IsOptional()
  @IsInt()
  readonly fencingToken?: number;
}
