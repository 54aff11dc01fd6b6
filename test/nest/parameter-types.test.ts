import { Body, Controller, HttpCode, Param, Post, ValidationPipe } from '@nestjs/common';
import { fromContext, Locked } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { post, startApp } from '../support/nest-app.js';
import { PayOrder, type Receipt } from '../support/pay-order.js';

@Controller()
class Payments {
  ran = 0;

  @Post('arguments/:id')
  @HttpCode(200)
  @Locked('order:{0}')
  async ofArguments(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @Post('function/:id')
  @HttpCode(200)
  @Locked((id, order) => `order:${id}:${order.amount}`)
  async ofFunction(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @Post('request/:id')
  @HttpCode(200)
  @Locked('order:{params.id}')
  async ofRequest(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @HttpCode(200)
  @Locked(fromContext(() => 'orders'))
  @Post('context/:id')
  async ofContext(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  private pay(order: PayOrder): Receipt {
    this.ran++;
    return { paid: order.amount };
  }
}

describe('the class of a body that a handler imports as a value', () => {
  it.each(['arguments', 'function', 'request', 'context'])(
    'a ValidationPipe checks the class of a body under @Locked with a key made of the %s [G204]',
    async (kind) => {
      const { app, url } = await startApp({ controllers: [Payments] }, undefined, (made) =>
        made.useGlobalPipes(new ValidationPipe()),
      );
      const refused = await post(`${url}/${kind}/17`, { amount: 'all of it' });
      expect([refused.status, await refused.json()]).toMatchObject([
        400,
        { message: [expect.stringMatching('amount')] },
      ]);
      expect(app.get(Payments).ran).toBe(0);

      const paid = await post(`${url}/${kind}/17`, { amount: 5 });
      expect([paid.status, await paid.json()]).toEqual([200, { paid: 5 }]);
    },
  );
});
