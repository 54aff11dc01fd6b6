import { Injectable } from '@nestjs/common';
import { Subject } from 'rxjs';

export interface Write {
  resource: string;
  accepted: boolean;
}

/** Tells the demonstration which writes arrived, and which of them were refused for a fencing token that is too old. */
@Injectable()
export class WritesService {
  readonly writes$ = new Subject<Write>();
}
