export { LocksPageModule } from './locks-page.module.js';
export type { LocksPageOptions, PageGuard } from './page-options.js';
