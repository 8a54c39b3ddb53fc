import { AGENT_TOOLS } from '../../../protocol/agent-tools.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import type {
  CancelNotification,
  ContentBlock,
  InitializeRequest,
  LoadSessionRequest,
  McpServer,
  NewSessionRequest,
  PromptRequest,
  RequestPermissionResponse,
  ResumeSessionRequest,
  SetSessionConfigOptionRequest,
  SetSessionModeRequest,
} from '@agentclientprotocol/sdk';
import type { RpcId } from './wire.ts';
import { TO_AGENT, VERSION } from './wire.ts';

/** Messages to an agent, as lines. The types are those of the protocol's authors. */

export const WORKING_DIRECTORY = '/workspace';

/** The tools that Holdfast offers, as a program that speaks on standard input and output: every agent takes those. */
const TOOLS: McpServer = {
  name: AGENT_TOOLS.name,
  command: `${IN_SANDBOX.runtime}/busybox`,
  args: ['sh', `${IN_SANDBOX.runtime}/tools.sh`],
  env: [],
};

/** Ours. Another name would be taken for another client's quirks by agents that look at it. */
const CLIENT = { name: 'holdfast', title: 'Holdfast' } as const;

/** A request without its id. */
export interface Request {
  readonly method: string;
  readonly params: unknown;
}

/** Files and terminals of the client are not offered: the agent works in its own sandbox. */
export function initialize(version: string): Request {
  const params: InitializeRequest = {
    protocolVersion: VERSION,
    clientInfo: { ...CLIENT, version },
    clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
  };
  return { method: TO_AGENT.initialize, params };
}

export function newSession(): Request {
  const params: NewSessionRequest = { cwd: WORKING_DIRECTORY, mcpServers: [TOOLS] };
  return { method: TO_AGENT.session_new, params };
}

export function loadSession(sessionId: string): Request {
  const params: LoadSessionRequest = { sessionId, cwd: WORKING_DIRECTORY, mcpServers: [TOOLS] };
  return { method: TO_AGENT.session_load, params };
}

export function resumeSession(sessionId: string): Request {
  const params: ResumeSessionRequest = { sessionId, cwd: WORKING_DIRECTORY, mcpServers: [TOOLS] };
  return { method: TO_AGENT.session_resume, params };
}

export function setOption(sessionId: string, configId: string, value: string): Request {
  const params: SetSessionConfigOptionRequest =
    value === 'true' || value === 'false'
      ? { sessionId, configId, type: 'boolean', value: value === 'true' }
      : { sessionId, configId, value };
  return { method: TO_AGENT.session_set_config_option, params };
}

export function setMode(sessionId: string, modeId: string): Request {
  const params: SetSessionModeRequest = { sessionId, modeId };
  return { method: TO_AGENT.session_set_mode, params };
}

export function prompt(sessionId: string, blocks: ContentBlock[]): Request {
  const params: PromptRequest = { sessionId, prompt: blocks };
  return { method: TO_AGENT.session_prompt, params };
}

export function requestLine(id: number, { method, params }: Request): Buffer {
  return line({ jsonrpc: '2.0', id, method, params });
}

export function cancelLine(sessionId: string): Buffer {
  const params: CancelNotification = { sessionId };
  return line({ jsonrpc: '2.0', method: TO_AGENT.session_cancel, params });
}

/** `optionId` null: the turn was cancelled. */
export function permissionLine(id: RpcId, optionId: string | null): Buffer {
  const result: RequestPermissionResponse = {
    outcome: optionId === null ? { outcome: 'cancelled' } : { outcome: 'selected', optionId },
  };
  return line({ jsonrpc: '2.0', id, result });
}

export function errorLine(id: RpcId, code: number, message: string): Buffer {
  return line({ jsonrpc: '2.0', id, error: { code, message } });
}

function line(message: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(message)}\n`);
}
