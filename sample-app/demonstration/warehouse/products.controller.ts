import { Body, Controller, Get, Param, Put } from '@nestjs/common';
import { FencingToken } from 'nest-redis-lock';
import { ShelvesService } from './shelves.service.js';
import { StockWrite } from './stock-write.dto.js';

@Controller('products')
export class ProductsController {
  constructor(private readonly shelves: ShelvesService) {}

  @Get()
  list(): Promise<string[]> {
    return this.shelves.skus();
  }

  @Get(':sku')
  async read(@Param('sku') sku: string): Promise<{ boxes: number }> {
    return { boxes: await this.shelves.read(sku) };
  }

  @Put(':sku')
  async write(
    @Param('sku') sku: string,
    @Body() { boxes }: StockWrite,
    @FencingToken('product:{params.sku}', { optional: true }) fencingToken?: number,
  ): Promise<{ boxes: number }> {
    await this.shelves.write(sku, boxes, fencingToken);
    return { boxes };
  }
}
