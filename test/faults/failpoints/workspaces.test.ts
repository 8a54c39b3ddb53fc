import { killedIn } from './scenarios.ts';

killedIn('workspaces');
