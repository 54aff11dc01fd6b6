import { Injectable } from '@nestjs/common';
import { Subject } from 'rxjs';

export interface Write {
  resource: string;
  accepted: boolean;
}

/** Reports to the demonstration which writes arrived, and which of them were refused because their fencing token was too old. */
@Injectable()
export class WritesService {
  readonly writes$ = new Subject<Write>();
}
