import { BadRequestException, Injectable, type PipeTransform } from '@nestjs/common';
import { SKU } from './sku.js';

@Injectable()
export class ParseSkuPipe implements PipeTransform<string, string> {
  transform(value: string): string {
    if (SKU.test(value)) return value;
    throw new BadRequestException('A sku is made of 1 to 40 small letters, digits and dashes.');
  }
}
