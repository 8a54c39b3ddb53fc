import { statfs } from 'node:fs/promises';
import type { Log } from '../../base/log.ts';
import { AgentChoices } from '../../agents/agent-choices.ts';
import { AgentConversations } from '../../agents/acp/agent-conversations.ts';
import { PromptFiles } from '../../agents/prompt-files.ts';
import { ConversationStore } from '../../agents/acp/conversation-store.ts';
import { Permissions } from '../../agents/permissions.ts';
import { AgentChoiceRows } from '../../store/agent-choices.ts';
import { AgentConversationRows } from '../../store/agent-conversations.ts';
import { PermissionRows } from '../../store/permissions.ts';
import { SidecarProcessChannel, type UseSidecar } from '../../workspace/sidecar-process-channel.ts';
import { AgentSnapshots } from '../../tools/agent-snapshots.ts';
import { AgentTools } from '../../tools/agent-tools.ts';
import { EgressRequests } from '../../tools/egress-requests.ts';
import { sessionTools } from '../../tools/session-tools.ts';
import type { Program } from '../program.ts';
import type { StorageLayer } from './storage.ts';
import type { NetworkLayer } from './network.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import { runsAs } from '../../../protocol/turn-kinds.ts';

/** Agents that stay and take prompts, and what they ask people. */
export function createAgents(
  below: StorageLayer & NetworkLayer & SandboxLayer & Pick<SnapshotLayer, 'changes'>,
  program: Program,
  log: Log,
) {
  const {
    database,
    turns,
    conversationLive: live,
    handover,
    lifecycle,
    freezing,
    records,
    profiles,
    now,
  } = below;
  const rows = new PermissionRows(database);
  const conversationRows = new AgentConversationRows(database);
  const agentChoices = new AgentChoices({
    ...below,
    rows: new AgentChoiceRows(database),
    conversationRows,
    offersSettings: (sessionId) =>
      runsAs(profiles.get(records.get(sessionId).profile)?.config.agent, 'conversation'),
  });
  const permissions = new Permissions({
    ...below,
    rows,
    isRunning: (turnId) => turns.statusOf(turnId) === 'running',
  });
  const egressRequests = new EgressRequests({ ...below, permissionRows: rows, permissions });
  permissions.answering.on((answer) => egressRequests.handleAnswer(answer));
  const useSidecar =
    (sessionId: string): UseSidecar =>
    (use, isSuspect) =>
      lifecycle.withSidecar(sessionId, use, isSuspect);
  const promptFiles = new PromptFiles({ ...below, useSidecar });
  const agentConversations = new AgentConversations({
    ...below,
    promptFiles,
    channel: (sessionId) => new SidecarProcessChannel(useSidecar(sessionId)),
    store: new ConversationStore({
      ...below,
      rows: conversationRows,
      permissions: rows,
      now,
    }),
    onLive: (sessionId, { turnId, message, role, text }) =>
      live.append(sessionId, turnId, message, role, text),
    handover: (sessionId, turnId) => handover.textFor(sessionId, { exceptTurn: turnId }),
    mustStartOver: (sessionId) => handover.mustStartOver(sessionId),
    wantedOf: (sessionId) => ({
      model: records.peek(sessionId)?.model ?? null,
      choices: agentChoices.of(sessionId),
    }),
    answerTo: (id) => permissions.answerTo(id),
    isSuspended: (sessionId) => freezing.isFrozen(sessionId) || records.peek(sessionId)?.status === 'paused',
    version: program.info.version,
    log: log.child('agents'),
  });
  permissions.answered.on(({ row, option }) => {
    agentConversations.answer(row.sessionId, row.id, option);
    // The answer may have been a rule.
    below.egress.applyRules();
  });
  below.events.appended.on(({ sessionId, events }) => {
    if (!events.some(({ type }) => type === 'agent.chosen' || type === 'session.updated')) return;
    database.afterCommit(() => agentConversations.chosen(sessionId));
  });
  return {
    ...{ permissions, agentConversations, agentChoices, promptFiles },
    ...{ permissionRows: rows, egressRequests },
  };
}

async function freeBytesAt(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/** What agents can ask of Holdfast itself. */
export function createTools(
  below: StorageLayer & NetworkLayer & SandboxLayer & SnapshotLayer & AgentLayer,
  program: Program,
  log: Log,
) {
  const { engine, egress, records, profiles, home } = below;
  const agentSnapshots = new AgentSnapshots({ ...below, freeBytes: () => freeBytesAt(home.store) });
  const agentTools = new AgentTools({
    tools: sessionTools({ ...below, agentSnapshots }),
    offersTools: (sessionId) => {
      const row = records.peek(sessionId);
      return row !== null && runsAs(profiles.get(row.profile)?.config.agent, 'conversation');
    },
    dial: (sessionId) => engine.dial(sessionId),
    version: program.info.version,
    log: log.child('tools'),
  });
  egress.liveness.on(({ sessionId, isLive }) => agentTools.setLive(sessionId, isLive));
  return { agentTools };
}

export type AgentLayer = ReturnType<typeof createAgents>;
export type ToolLayer = ReturnType<typeof createTools>;
