import { Agent } from 'node:http';
import { inspect } from 'node:util';

/**
 * docker-modem formats every request for its debug log even when debugging is off. The request holds the agent, and
 * the agent holds all open connections: 13 ms a call beside four streams. This agent formats as one word.
 */
export class TerseAgent extends Agent {
  [inspect.custom](): string {
    return 'TerseAgent';
  }
}
