import { firstTables } from './001-first-tables.ts';
import { egressRules } from './002-egress-rules.ts';
import { snapshots } from './003-snapshots.ts';
import { terminals } from './004-terminals.ts';
import { incarnations } from './005-incarnations.ts';
import { turnSnapshots } from './006-turn-snapshots.ts';
import { contents } from './007-contents.ts';
import { secrets } from './008-secrets.ts';
import { agentHome } from './009-agent-home.ts';
import { conversation } from './010-conversation.ts';
import { reviews } from './011-reviews.ts';
import { agents } from './012-agents.ts';
import { workspaceBases } from './013-workspace-bases.ts';
import { egressProtocols } from './014-egress-protocols.ts';
import { egressRequests } from './015-egress-requests.ts';
import { setups } from './016-setups.ts';
import { reviewComments } from './017-review-comments.ts';
import { agentChoices } from './018-agent-choices.ts';
import { sandboxImages } from './019-sandbox-images.ts';
import { keptManifests } from './020-kept-manifests.ts';
import { eventSpans } from './021-event-spans.ts';
import { restoreEvents } from './022-restore-events.ts';
import { promotedArtifacts } from './023-promoted-artifacts.ts';
import { attachments } from './024-attachments.ts';
import { moves } from './025-moves.ts';
import { setupTemplates } from './026-setup-templates.ts';
import { sessionOrigins } from './027-session-origins.ts';
import { historyCheckpoints } from './028-history-checkpoints.ts';
import { turnChanges } from './029-turn-changes.ts';

/** One version of the schema. `sql` and the new version number are one transaction. `sql` may call `sha256(blob)`. */
export interface Migration {
  readonly version: number;
  readonly sql: string;
}

/** In order and without gaps. A released migration never changes; add another one. */
export const MIGRATIONS: readonly Migration[] = [
  firstTables,
  egressRules,
  snapshots,
  terminals,
  incarnations,
  turnSnapshots,
  contents,
  secrets,
  agentHome,
  conversation,
  reviews,
  agents,
  workspaceBases,
  egressProtocols,
  egressRequests,
  setups,
  reviewComments,
  agentChoices,
  sandboxImages,
  keptManifests,
  eventSpans,
  restoreEvents,
  promotedArtifacts,
  attachments,
  moves,
  setupTemplates,
  sessionOrigins,
  historyCheckpoints,
  turnChanges,
];
