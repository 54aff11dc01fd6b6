import {
  applyDecorators,
  BadRequestException,
  Body,
  Controller,
  createParamDecorator,
  ForbiddenException,
  Get,
  Header,
  HttpCode,
  Inject,
  Logger,
  Post,
  Query,
  Req,
  Res,
  ServiceUnavailableException,
  Sse,
  UseGuards,
  VERSION_NEUTRAL,
  type ExecutionContext,
  type MessageEvent,
  type Type,
} from '@nestjs/common';
import { map, tap, type Observable } from 'rxjs';
import { LockKeyError, LockOptionsError, LockUnavailableError } from '../api/errors.js';
import { printable, quoted } from '../api/printable.js';
import type { LockService } from '../core/service/lock.service.js';
import { getLockServiceToken } from '../nest/injection/tokens.js';
import { LockWatches } from './lock-watch.js';
import type { LocksPageOptions } from './page-options.js';
import { PAGE_SCRIPT } from './page-script.js';
import { PAGE_STYLE } from './page-style.js';
import { pageText } from './page-text.js';
import { refuseForeign } from './same-origin.js';
import { cutOff, newestFor, type PageRequest, type PageResponse } from './request.js';

const logger = new Logger('LocksPage');

/** Makes a controller class for each page, since Nest stores the path and the guards on the class. */
export function pageController(options: LocksPageOptions): Type<unknown> {
  const { path, guards, allowRelease = false, mayRelease, registration } = options;

  /** Whether the viewer may release locks by force. */
  const MayRelease = createParamDecorator(async (_: unknown, context: ExecutionContext): Promise<boolean> => {
    return allowRelease && (mayRelease === undefined || (await mayRelease(context)) === true);
  });

  @Controller({ path, version: VERSION_NEUTRAL })
  @UseGuards(...(guards === 'none' ? [] : guards))
  class LocksPageController {
    constructor(
      @Inject(getLockServiceToken(registration)) private readonly locks: LockService,
      @Inject(LockWatches) private readonly watches: LockWatches,
    ) {}

    @Get()
    @PageHeaders('text/html')
    text(@Req() request: PageRequest, @MayRelease() canRelease: boolean): string {
      return pageText(request.originalUrl ?? request.url, canRelease, this.locks.registration);
    }

    @Get('page.js')
    @PageHeaders('text/javascript')
    script(): string {
      return PAGE_SCRIPT;
    }

    @Get('page.css')
    @PageHeaders('text/css')
    style(): string {
      return PAGE_STYLE;
    }

    @Sse('events')
    @PageHeaders()
    events(
      @Res() response: PageResponse,
      @MayRelease() canRelease: boolean,
      @Query('match') match?: unknown,
    ): Observable<MessageEvent> {
      if (match !== undefined && typeof match !== 'string') throw new BadRequestException('match must be given once.');
      return this.watches
        .of(this.locks)
        .see(match)
        .pipe(
          newestFor(response),
          map((view) => ({ data: view.json(canRelease) })),
          tap({ complete: () => cutOff(response) }),
        );
    }

    @Post('release')
    @HttpCode(200)
    @PageHeaders()
    async release(
      @Req() request: PageRequest,
      @MayRelease() canRelease: boolean,
      @Body() body: unknown,
    ): Promise<{ released: boolean }> {
      if (!canRelease) throw new ForbiddenException('This page is read-only.');
      refuseForeign(request);
      const { key, digest } = Object(body) as { key?: unknown; digest?: unknown };
      if (typeof key !== 'string' || typeof digest !== 'string') {
        throw new BadRequestException('Expected JSON with the key of a lock and the digest that was shown.');
      }
      const released = await this.#release(key, digest);
      const outcome = released ? 'released by force' : 'not released, because it now has another holder, or none';
      logger.warn(`Lock ${quoted(key)} was ${outcome}: requested on the locks page${userOf(request)}.`);
      return { released };
    }

    async #release(key: string, digest: string): Promise<boolean> {
      try {
        return await this.locks.forceRelease(key, { owner: digest, scope: null });
      } catch (error) {
        if (error instanceof LockKeyError) throw new BadRequestException('This is not a valid key of a lock.');
        if (error instanceof LockOptionsError) throw new BadRequestException('This is not the digest of a holder.');
        if (!(error instanceof LockUnavailableError)) throw error;
        logger.error(error);
        throw new ServiceUnavailableException(
          'The store did not answer: the lock may still be released, but only from this holder.',
        );
      }
    }
  }

  return LocksPageController;
}

/** The page loads only from its own server, no other page may frame it, and nothing is cached. */
const HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'",
  'Cache-Control': 'no-store, no-transform',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
};

function PageHeaders(type?: string): MethodDecorator {
  const contentType = type === undefined ? [] : [Header('Content-Type', `${type}; charset=utf-8`)];
  return applyDecorators(...contentType, ...Object.entries(HEADERS).map(([name, value]) => Header(name, value)));
}

function userOf({ user }: PageRequest): string {
  const id = user?.id;
  return typeof id === 'string' || typeof id === 'number' ? ` by user ${printable(JSON.stringify(id))}` : '';
}
