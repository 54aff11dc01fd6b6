import { IsInt, IsObject } from 'class-validator';

export class ReportFiling {
  @IsObject()
  readonly boxes!: Record<string, number>;

  @IsInt()
  readonly by!: number;
}
