import { Injectable, type NestMiddleware } from '@nestjs/common';
import { NetworkService } from './network.service.js';

@Injectable()
export class NetworkMiddleware implements NestMiddleware {
  constructor(private readonly network: NetworkService) {}

  async use(request: { method: string; originalUrl: string }, _response: unknown, next: () => void): Promise<void> {
    await this.network.carry(`${request.method} ${request.originalUrl}`);
    next();
  }
}
