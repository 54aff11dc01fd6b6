export { until } from '../../lib/testing/until.js';
