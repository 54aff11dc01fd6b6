import { IsInt } from 'class-validator';

/** The body of a request, which a `ValidationPipe` finds by the metadata of the handler. */
export class PayOrder {
  @IsInt() amount!: number;
}

export interface Receipt {
  paid: number;
}
