import { testScenarios } from './scenarios.ts';

testScenarios('workspaces');
