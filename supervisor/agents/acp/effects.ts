import { hash } from 'node:crypto';
import type { AGENT_EVENTS, AnsweredBy, PermissionOption } from '../../../protocol/agent-events.ts';
import { type Content, JSON_TEXT, TEXT } from '../../../protocol/contents.ts';
import type { EventData } from '../../../protocol/events.ts';
import type { ToolKind } from '../../../protocol/agent-events.ts';

type AgentEventType = keyof typeof AGENT_EVENTS;

/** An event to store. `bytes`: its content, where that is not stored yet. */
export type NewEvent = {
  [T in AgentEventType]: { readonly type: T; readonly data: EventData<T>; readonly bytes: Buffer | null };
}[AgentEventType];

/** A permission to store with its event. */
export interface NewPermission {
  readonly id: string;
  readonly turnId: string;
  readonly kind: ToolKind;
  readonly title: string;
  readonly locations: readonly { readonly path: string; readonly line: number | null }[];
  readonly options: readonly PermissionOption[];
  /** What the rules of the profile look at: the command, as far as the agent names it. */
  readonly command: string | null;
}

/** A permission that was answered by the machine: the end of the turn or a rule. */
export interface SettledPermission {
  readonly id: string;
  readonly option: PermissionOption | null;
  readonly by: AnsweredBy;
}

/** Text that an agent streams, before it is stored. */
export interface LiveText {
  readonly turnId: string;
  readonly message: number;
  readonly role: 'agent' | 'thought';
  readonly text: string;
}

/** Everything that a step of the machine asks for. All of it is stored in one transaction, and only then sent. */
export interface Commit {
  readonly events: readonly NewEvent[];
  readonly asked: readonly NewPermission[];
  readonly settled: readonly SettledPermission[];
  /** Messages to the agent, each a line with its newline. */
  readonly lines: readonly Buffer[];
}

export function contentOfText(text: string): { content: Content; bytes: Buffer } {
  return describe(Buffer.from(text), TEXT);
}

export function contentOfJson(value: unknown): { content: Content; bytes: Buffer } {
  return describe(Buffer.from(JSON.stringify(value)), JSON_TEXT);
}

function describe(bytes: Buffer, mediaType: string) {
  return { content: { sha256: hash('sha256', bytes), bytes: bytes.length, mediaType }, bytes };
}
