import { env } from 'vscode';
import type { LateRequestHandlers } from '../../webview/late-messages.ts';
import type { Connection } from '../connection/connection.ts';
import { readManifest, readRecord } from './session-record.ts';

/** Answers what the late views of a session's page ask. */
export function lateHandlers(connection: Connection, session: string): LateRequestHandlers {
  return {
    record: () => readRecord(connection, session),
    copyManifest: async () => {
      await env.clipboard.writeText(JSON.stringify(await readManifest(connection, session)));
      return {};
    },
  };
}
