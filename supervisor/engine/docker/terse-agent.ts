import { Agent } from 'node:http';
import { inspect } from 'node:util';

/**
 * dockerode's modem writes out every request for its debug log, also while nobody asked for one, and the agent among it leads to all
 * connections that are open: 13 ms a call beside four streams. This one is one word.
 */
export class TerseAgent extends Agent {
  [inspect.custom](): string {
    return 'TerseAgent';
  }
}
