import { window } from 'vscode';
import type { Memento, QuickPickItem } from 'vscode';
import { sendHead } from '../../handoff/review-head.ts';
import type { Session } from '../../protocol/entities.ts';
import type { ReviewBase } from '../../protocol/review.ts';
import { formatBytes, formatCount } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import { chooseRepository, openChosen, rememberRepository } from '../handoff/repository-choice.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { pickSnapshot } from '../snapshots/pick-snapshot.ts';

/** What a review compares with. `upload`: the files of a commit that were sent. */
export interface ChosenBase {
  readonly base: ReviewBase;
  readonly upload?: string;
}

type Kind = 'last' | 'start' | 'head' | 'snapshot';

const ITEMS: readonly (QuickPickItem & { readonly from: Kind })[] = [
  {
    from: 'last',
    label: '$(check-all) The Last Review',
    detail: 'what you accepted then, or else the start',
  },
  {
    from: 'start',
    label: '$(milestone) The Start of the Session',
    detail: 'everything that was ever changed',
  },
  {
    from: 'head',
    label: '$(git-commit) The Commit That Is Checked Out',
    detail: 'HEAD of a repository on this machine, with what you committed since the deploy',
  },
  { from: 'snapshot', label: '$(history) A Snapshot…', detail: 'also those from before each turn' },
];

/** The base of a review that a person chooses. Undefined where they stop. Errors: those of `sendHead`, `not_found` without snapshots. */
export async function chooseBase(
  host: { readonly connection: Connection; readonly state: Memento },
  session: Session,
): Promise<ChosenBase | undefined> {
  const title = `Review ${sanitize(sessionTitle(session), 60)} since`;
  const picked = await window.showQuickPick(ITEMS, { title, placeHolder: 'Compare the workspace with…' });
  switch (picked?.from) {
    case undefined:
      return undefined;
    case 'last':
    case 'start':
      return { base: picked.from };
    case 'snapshot': {
      const snapshot = await pickSnapshot(host.connection, session, { title });
      if (snapshot === undefined || snapshot === 'now') return undefined;
      return { base: `snapshot:${snapshot.id}` };
    }
    case 'head':
      return await chooseHead(host, session, title);
  }
}

async function chooseHead(
  { connection, state }: { readonly connection: Connection; readonly state: Memento },
  session: Session,
  title: string,
): Promise<ChosenBase | undefined> {
  const folder = await chooseRepository(state, title);
  if (folder === undefined) return undefined;
  return await withProgress(title, async (report, signal) => {
    // What is sent belongs to one connection: that of the host which has the session.
    const host = connection.of(session.id);
    try {
      const repository = await openChosen(folder, connection, 'review', signal);
      await rememberRepository(state, folder);
      return await sendHead(
        host,
        { session: session.id, repository, folder },
        {
          signal,
          onProgress: (stage) => report(sanitize(stage)),
          onSend: ({ files, bytes }) => {
            const where = host.name === LOCAL ? 'the supervisor on this machine' : sanitize(host.name);
            const what = `${formatCount(files, 'file')} (${formatBytes(bytes)}) of the commit`;
            report(`Sending ${what} to ${where}`);
          },
        },
      );
    } catch (error) {
      // Git that was ended fails, too. The person who cancelled needs no message.
      if (signal.aborted) return undefined;
      throw error;
    }
  });
}
