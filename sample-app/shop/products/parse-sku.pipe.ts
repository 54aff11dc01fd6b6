import { BadRequestException, Injectable, type PipeTransform } from '@nestjs/common';
import { SKU } from './sku.js';

@Injectable()
export class ParseSkuPipe implements PipeTransform<string, string> {
  transform(value: string): string {
    if (SKU.test(value)) return value;
    throw new BadRequestException('A sku has 1 to 40 lower-case letters, digits and dashes.');
  }
}
