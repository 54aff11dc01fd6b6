import { Controller, Get, Param, Post } from '@nestjs/common';
import { Locked, LockService } from 'nest-redis-lock';
import { ParseSkuPipe } from './parse-sku.pipe.js';
import { ProductsService, type Receipt, type Stock } from './products.service.js';

@Controller('products')
export class ProductsController {
  constructor(
    private readonly products: ProductsService,
    private readonly locks: LockService,
  ) {}

  @Get(':sku')
  async show(@Param('sku', ParseSkuPipe) sku: string): Promise<Stock> {
    return this.products.stockOf(sku);
  }

  @Post(':sku/purchases')
  @Locked('product:{0}')
  async buy(@Param('sku', ParseSkuPipe) sku: string): Promise<Receipt> {
    return this.products.sell(sku, this.locks.current());
  }

  /** The same without the lock, to show what the lock is for. */
  @Post(':sku/unlocked-purchases')
  async buyUnlocked(@Param('sku', ParseSkuPipe) sku: string): Promise<Receipt> {
    return this.products.sell(sku);
  }
}
