export { LockedCron, type LockedCronDecorator, type LockedCronOptions } from './locked-cron.decorator.js';
