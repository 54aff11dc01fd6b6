import { IsInt } from 'class-validator';

/** The body of a request, whose class a `ValidationPipe` finds in the metadata of the handler. */
export class PayOrder {
  @IsInt() amount!: number;
}

export interface Receipt {
  paid: number;
}
