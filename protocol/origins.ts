import type { Author } from './agent-events.ts';
import type { Session } from './entities.ts';

/** Where sessions and snapshots come from, in words. */

export const AUTHOR_NAMES: Readonly<Record<Author, string>> = {
  person: 'a person',
  agent: 'the agent',
  supervisor: 'Holdfast',
};

/** How a session began, as what follows "it began"; null for one that began by itself, and where nobody says. */
export function beginningOf({ origin }: Pick<Session, 'origin'>): string | null {
  switch (origin?.kind) {
    case 'fork':
      return `as a fork of snapshot ${origin.snapshotId ?? ''}`;
    case 'snapshot':
      return `with the files of snapshot ${origin.snapshotId ?? ''}`;
    case 'import':
      return 'as the import of a bundle';
    case 'new':
    case undefined:
      return null;
  }
}

/** The first session of its lineage; null where that is the session itself. */
export function ancestorOf({ id, lineage }: Pick<Session, 'id' | 'lineage'>): string | null {
  return lineage === id ? null : lineage;
}
