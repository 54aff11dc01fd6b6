import { Catch, HttpStatus, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { StaleTokenError } from 'nest-redis-lock';

/** Answers as Nest itself would, but logs nothing: here, a late write is expected. */
@Catch(StaleTokenError)
export class StaleTokenFilter implements ExceptionFilter<StaleTokenError> {
  catch(error: StaleTokenError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<{ status(code: number): { json(body: object): void } }>();
    response
      .status(error.status)
      .json({ statusCode: error.status, message: HttpStatus[error.status], code: error.code });
  }
}
