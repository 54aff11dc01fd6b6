import { Body, Controller, Get, Post } from '@nestjs/common';
import { ReportFiling } from './report-filing.dto.js';
import { ReportsService, type Report } from './reports.service.js';

@Controller('reports')
export class ReportsController {
  constructor(private readonly reports: ReportsService) {}

  @Get()
  list(): readonly Report[] {
    return this.reports.all;
  }

  @Post()
  file(@Body() { boxes, by, fencingToken }: ReportFiling): Report {
    this.reports.file({ boxes, by }, fencingToken);
    return { boxes, by };
  }
}
