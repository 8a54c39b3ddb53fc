import { killedIn } from './scenarios.ts';

killedIn('snapshots');
