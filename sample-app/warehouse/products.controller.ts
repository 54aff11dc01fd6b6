import { Body, Controller, Get, Param, Put } from '@nestjs/common';
import { ShelvesService } from './shelves.service.js';
import { StockWrite } from './stock-write.dto.js';

@Controller('products')
export class ProductsController {
  constructor(private readonly shelves: ShelvesService) {}

  @Get()
  list(): string[] {
    return this.shelves.skus;
  }

  @Get(':sku')
  read(@Param('sku') sku: string): { boxes: number } {
    return { boxes: this.shelves.read(sku) };
  }

  @Put(':sku')
  write(@Param('sku') sku: string, @Body() { boxes, fencingToken }: StockWrite): { boxes: number } {
    this.shelves.write(sku, boxes, fencingToken);
    return { boxes };
  }
}
