import { Locked } from 'nest-redis-lock';
import { describeDecorators } from '../support/keeps-decorators.js';

describeDecorators('Locked', Locked('key:{body.id}'));
