import { Limited, Locked } from 'nest-redis-lock';
import { describeDecorators } from '../support/keeps-decorators.js';

describeDecorators('Locked', Locked('key:{body.id}'));
describeDecorators('Limited', Limited('key:{body.id}', { limit: 2 }));
