import { testScenarios } from './scenarios.ts';

testScenarios('sessions');
