import { EGRESS_PROXY } from './egress.ts';

/** Where processes in a sandbox reach the tools of Holdfast. `sidecar/guest/tools.sh` has the port as well. */
export const AGENT_TOOLS = { name: 'holdfast', host: EGRESS_PROXY.host, port: 3129 } as const;

export const AGENT_TOOL_LIMITS = {
  /** Bytes of one message of an agent, and how deep it may nest. */
  messageBytes: 64 * 1024,
  depth: 32,
  /** Bytes of the text of one answer; a longer one is cut, and says so. */
  answerBytes: 32 * 1024,
  /** Messages of a session, whatever they say: so many at once, and one more every so many ms. */
  messages: { burst: 120, everyMs: 100 },
  /** Messages of a session that are answered at the same time. Further ones are tried again. */
  concurrent: 16,
  /** Hosts that an agent may ask for in one turn, and how many of them may wait. */
  hostsPerTurn: 20,
  waitingHosts: 4,
  /** How long a question is waited for before its call ends. The question stays, and the next call for it waits on. */
  answerWaitMs: 10 * 60_000,
} as const;
