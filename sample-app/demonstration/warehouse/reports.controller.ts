import { Body, Controller, Get, Post } from '@nestjs/common';
import { FencingToken } from 'nest-redis-lock';
import { ReportFiling } from './report-filing.dto.js';
import { ReportsService, type Report } from './reports.service.js';

@Controller('reports')
export class ReportsController {
  constructor(private readonly reports: ReportsService) {}

  @Get()
  list(): Promise<Report[]> {
    return this.reports.all();
  }

  @Post()
  async file(@Body() { boxes, by }: ReportFiling, @FencingToken('nightly') fencingToken: number): Promise<Report> {
    await this.reports.file({ boxes, by }, fencingToken);
    return { boxes, by };
  }
}
