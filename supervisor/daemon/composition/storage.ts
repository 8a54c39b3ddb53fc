import { BackgroundWork } from '../../base/background-work.ts';
import { randomIds } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { ConversationLive } from '../../conversation/conversation-live.ts';
import { ConversationReader } from '../../conversation/conversation-reader.ts';
import { ConversationSearch } from '../../conversation/conversation-search.ts';
import { Conversations } from '../../conversation/conversations.ts';
import { Handover } from '../../conversation/handover.ts';
import { SessionMemory } from '../../conversation/session-memory.ts';
import type { Engine } from '../../engine/port.ts';
import { Artifacts } from '../../history/artifacts.ts';
import { Attachments } from '../../history/attachments.ts';
import { Checkpoints } from '../../history/checkpoints.ts';
import { Contents } from '../../history/contents.ts';
import { EventLog } from '../../history/event-log.ts';
import { HistoryCuts } from '../../history/history-cuts.ts';
import { SessionRecords } from '../../history/session-records.ts';
import { TurnOutput } from '../../history/turn-output.ts';
import { type HostKey, openHostKey } from '../../manifests/host-key.ts';
import { LineageStores } from '../../snapshots/store/lineage-stores.ts';
import { openDatabase } from '../../store/database.ts';
import { SecretFiles } from '../../secrets/secret-files.ts';
import { SecretStore } from '../../secrets/secret-store.ts';
import { AttachmentUploads } from '../../store/attachment-uploads.ts';
import type { Home } from '../../store/home.ts';
import { Operations } from '../../store/operations.ts';
import { Profiles } from '../../store/profiles.ts';
import { DiskReserve } from '../../store/reserve.ts';
import { SecretRows } from '../../store/secrets.ts';
import { ReviewCommentRows } from '../../store/review-comments.ts';
import { ReviewRows } from '../../store/reviews.ts';
import { Sessions } from '../../store/sessions.ts';
import { Snapshots } from '../../store/snapshots.ts';
import { TurnPaths } from '../../store/turn-paths.ts';
import { Turns } from '../../store/turns.ts';
import { WorkspaceBases } from '../../store/workspace-bases.ts';

/** Rows, history and the object stores of snapshots. */
export function openStorage(home: Home, log: Log) {
  const now = (): number => Date.now();
  const database = openDatabase(home);
  const sessions = new Sessions(database);
  const events = new EventLog(database, (error) => log.error('a listener of events failed', { error }));
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const uploads = new AttachmentUploads(database);
  const attachments = new Attachments({ database, uploads, contents, now, log: log.child('attachments') });
  const own = { database, sessions, events, contents, attachments };
  const hostKey = (): HostKey => openHostKey(home.hostKey);
  const checkpoints = new Checkpoints({ ...own, homeId: home.id, key: hostKey, now });
  const operations = new Operations(database);
  const conversations = new Conversations({ ...own, log: log.child('conversations') });
  const conversationReader = new ConversationReader({ ...own, conversations });
  const sessionMemory = new SessionMemory({ ...own, operations });
  return {
    home,
    database,
    sessions,
    turns: new Turns(database),
    turnPaths: new TurnPaths(database),
    snapshots: new Snapshots(database),
    reviewRows: new ReviewRows(database),
    commentRows: new ReviewCommentRows(database),
    bases: new WorkspaceBases(database),
    profiles: new Profiles(database),
    operations,
    reserve: new DiskReserve(home),
    stores: new LineageStores(home),
    events,
    artifacts,
    contents,
    attachments,
    checkpoints,
    historyCuts: new HistoryCuts({
      ...{ database, events, contents, checkpoints, operations, now },
      snapshots: new Snapshots(database),
      log: log.child('history'),
    }),
    output: new TurnOutput(database, events, contents, artifacts),
    conversations,
    conversationReader,
    sessionMemory,
    handover: new Handover({ conversations, reader: conversationReader, memory: sessionMemory }),
    conversationSearch: new ConversationSearch({ ...own, conversations }),
    conversationLive: new ConversationLive({
      events,
      storedBytes: (...message) => conversations.storedBytes(...message),
    }),
    records: new SessionRecords(database, sessions, events, now),
    background: new BackgroundWork(log.child('sessions')),
    secrets: new SecretStore({
      rows: new SecretRows(database),
      files: new SecretFiles(home.secrets),
      log: log.child('secrets'),
      now,
    }),
    ids: randomIds,
    now,
  };
}

export type StorageLayer = ReturnType<typeof openStorage> & { readonly engine: Engine };
