import { Limited } from 'nest-redis-lock';
import { describeDecorators } from '../support/keeps-decorators.js';

describeDecorators('Limited', Limited('key:{body.id}', { limit: 2 }));
