import { testScenarios } from './scenarios.ts';

testScenarios('snapshots');
