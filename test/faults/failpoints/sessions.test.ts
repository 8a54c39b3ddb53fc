import { killedIn } from './scenarios.ts';

killedIn('sessions');
