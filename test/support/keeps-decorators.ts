import {
  applyDecorators,
  BadRequestException,
  Body,
  Catch,
  Controller,
  Header,
  HttpCode,
  Injectable,
  Post,
  SetMetadata,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
  type ArgumentsHost,
  type CallHandler,
  type CanActivate,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { LockService } from 'nest-redis-lock';
import type { Observable } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { post, sharedApp } from './nest-app.js';

class Teapot extends Error {}

@Injectable()
class AllowsWhoHasAName implements CanActivate {
  constructor(private readonly reflector: Reflector) {}

  canActivate(context: ExecutionContext): boolean {
    const custom = this.reflector.get<number>('custom', context.getHandler());
    return custom === 7 && context.switchToHttp().getRequest().headers.name !== undefined;
  }
}

class RefusesBad implements PipeTransform {
  transform(value: { bad?: boolean }): unknown {
    if (value.bad) throw new BadRequestException('bad');
    return value;
  }
}

@Injectable()
class TellsWhetherLocked implements NestInterceptor {
  static readonly seen: string[] = [];
  constructor(private readonly locks: LockService) {}

  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    TellsWhetherLocked.seen.push(this.locks.current().key);
    return next.handle();
  }
}

@Catch(Teapot)
class AnswersTeapot implements ExceptionFilter {
  catch(_error: Teapot, host: ArgumentsHost): void {
    host.switchToHttp().getResponse().status(418).json({ filtered: true });
  }
}

/** Like decorators that keep their data on the method itself. */
const Annotated: MethodDecorator = (_target, _name, descriptor) => {
  (descriptor.value as { annotated?: string }).annotated = 'yes';
};

const OTHERS = {
  Post: Post('run'),
  HttpCode: HttpCode(202),
  Header: Header('x-made-by', 'test'),
  SetMetadata: SetMetadata('custom', 7),
  Annotated,
  UseGuards: UseGuards(AllowsWhoHasAName),
  UsePipes: UsePipes(RefusesBad),
  UseInterceptors: UseInterceptors(TellsWhetherLocked),
  UseFilters: UseFilters(AnswersTeapot),
};

/** The other decorators in their order and in reverse, with ours first, in the middle and last. */
function arrangements(
  ours: [name: string, decorator: MethodDecorator],
): [names: string, decorators: MethodDecorator[]][] {
  const others = Object.entries(OTHERS);
  return [others, [...others].reverse()].flatMap((order) =>
    [0, Math.ceil(order.length / 2), order.length].map((place): [string, MethodDecorator[]] => {
      const all = [...order.slice(0, place), ours, ...order.slice(place)];
      return [all.map(([name]) => name).join(' '), all.map(([, decorator]) => decorator)];
    }),
  );
}

function controllerOf(path: string, decorators: MethodDecorator[]): Type {
  @Controller(path)
  class Made {
    @applyDecorators(...decorators)
    async handle(@Body() body: { id: string; fail?: boolean }): Promise<{ id: string }> {
      if (body.fail) throw new Teapot();
      return { id: body.id };
    }
  }
  return Made;
}

/** @param ours locks the key `key:{body.id}` */
export function describeDecorators(...ours: [name: string, decorator: MethodDecorator]): void {
  describe('a handler with its decorators in this order, from the lowest,', () => {
    const cases = arrangements(ours).map(([names, decorators], index) => {
      const path = `arrangement-${index}`;
      return { names, path, controller: controllerOf(path, decorators) };
    });
    const test = sharedApp({ controllers: cases.map(({ controller }) => controller) });

    it.each(cases)('a locked handler keeps its decorators: $names [G180]', async ({ path, controller }) => {
      const { acquired } = test;
      TellsWhetherLocked.seen.length = 0;
      const url = `${test.url}/${path}/run`;
      const headers = { name: 'Ada' };

      const response = await post(url, { id: 'a' }, { headers });
      expect([response.status, response.headers.get('x-made-by')]).toEqual([202, 'test']);
      expect(await response.json()).toEqual({ id: 'a' });
      expect([acquired, TellsWhetherLocked.seen]).toEqual([['key:a'], ['key:a']]);

      expect((await post(url, { id: 'b' })).status).toBe(403);
      expect(acquired).toEqual(['key:a']);

      expect((await post(url, { id: 'c', bad: true }, { headers })).status).toBe(400);
      const filtered = await post(url, { id: 'd', fail: true }, { headers });
      expect([filtered.status, await filtered.json()]).toEqual([418, { filtered: true }]);

      const { name, length, annotated } = controller.prototype.handle;
      expect([name, length, annotated]).toEqual(['handle', 1, 'yes']);
    });
  });
}
