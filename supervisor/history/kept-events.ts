import { contentsOf, type EventEntry } from '../../protocol/events.ts';

/** Events that stay whatever else is cut: what the session began with, and what was handed off and stated. */
const ALWAYS: ReadonlySet<string> = new Set<EventEntry['type']>([
  'session.created',
  'session.forked',
  'session.imported',
  'handoff.approved',
  'handoff.made',
  'handoff.undone',
  'manifest.made',
]);

/**
 * Finds the events that a cut leaves because something that is kept needs them: besides those of `ALWAYS` the newest
 * memory, the newest result of each check, the newest choice of a model, and restores of snapshots that are still there.
 * None of them is an event of a turn: a history has all events of a turn or none.
 */
export class KeptEvents {
  readonly #isSnapshotKept: (id: string) => boolean;
  /** Their seqs, and the contents that each names. */
  readonly #found = new Map<number, readonly string[]>();
  readonly #newest = new Map<string, number>();

  constructor(isSnapshotKept: (id: string) => boolean) {
    this.#isSnapshotKept = isSnapshotKept;
  }

  /** Call it with each event that would be removed, in order. */
  add(seq: number, entry: EventEntry): void {
    const keep = (): void => {
      this.#found.set(
        seq,
        contentsOf(entry).map(({ sha256 }) => sha256),
      );
    };
    if (ALWAYS.has(entry.type)) keep();
    const key = replacedBy(entry);
    if (key !== null) {
      const earlier = this.#newest.get(key);
      if (earlier !== undefined) this.#found.delete(earlier);
      this.#newest.set(key, seq);
      keep();
    }
    if (entry.type === 'workspace.restored') {
      const { snapshotId, undo } = entry.data;
      if (this.#isSnapshotKept(snapshotId) || (undo !== null && this.#isSnapshotKept(undo))) keep();
    }
  }

  /** In order. */
  upTo(seq: number): number[] {
    return [...this.#found.keys()].filter((one) => one <= seq).sort((a, b) => a - b);
  }

  /** The contents that they name. */
  contentsUpTo(seq: number): Set<string> {
    return new Set([...this.#found].flatMap(([one, contents]) => (one <= seq ? contents : [])));
  }
}

/** A later event with the same key makes this one unnecessary. */
function replacedBy({ type, data }: EventEntry): string | null {
  switch (type) {
    case 'memory.changed':
      return type;
    case 'check.ended':
      return `${type} ${data.of} ${data.name}`;
    case 'session.updated':
      return data.model === undefined ? null : 'model';
    default:
      return null;
  }
}
