import { HoldfastError } from '../../protocol/errors.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Freezing } from '../sandboxes/freezing.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { ScannedTrees, SessionTrees } from './session-trees.ts';
import type { LineageStore } from './store/lineage-store.ts';

const MIB = 2 ** 20;
/** Bytes that may be read during each successive freeze. Between two freezes the agent runs while the sidecar reads. */
const FROZEN_BYTES = [32 * MIB, 128 * MIB, 1024 * MIB] as const;

export interface ScanAttempt extends ScannedTrees {
  readonly frozenMs: number;
}

export interface ConsistentScansOptions {
  readonly freezing: Pick<Freezing, 'runFrozen'>;
  readonly sessionMutex: Pick<KeyedMutex, 'run'>;
}

/** Scans of one point in time: while the agent runs, and if it changes files meanwhile, again while it is frozen. */
export class ConsistentScans {
  readonly #options: ConsistentScansOptions;
  /** The fingerprint of the store damage that each session's sidecar has already been asked to repair. */
  readonly #repairRequested = new Map<string, string>();

  constructor(options: ConsistentScansOptions) {
    this.#options = options;
  }

  /**
   * `isLocked`: the caller holds the session's mutex. Errors: those of the sidecar; `conflict` when the workspace changes too fast.
   */
  async run(
    row: SessionRow,
    trees: SessionTrees,
    { damageFingerprint }: Pick<LineageStore, 'damageFingerprint'>,
    isLocked: boolean,
  ): Promise<ScanAttempt> {
    const { freezing, sessionMutex } = this.#options;
    let isBaseSuspect = damageFingerprint !== null && this.#repairRequested.get(row.id) !== damageFingerprint;
    const scan = (frozen: boolean, budgetBytes: number | null, awaitsLeases = false): Promise<ScannedTrees> =>
      trees.scan({ budgetBytes, frozen, isBaseSuspect, awaitsLeases });
    const first = await scan(false, null);
    let attempt: ScanAttempt = { ...first, frozenMs: 0 };
    // Objects that replace damaged ones are published even when the tree is unchanged.
    if (isBaseSuspect && damageFingerprint !== null && first.scan.complete) {
      await trees.publish(first);
      this.#repairRequested.set(row.id, damageFingerprint);
      isBaseSuspect = false;
    }
    // The kernel breaks a lease some time after the file was first opened. A running agent can take a new lease at
    // once; a frozen one cannot.
    let hasAwaitedLeases = missingOf(first) === 0;
    const isConsistent = (one: ScanAttempt): boolean =>
      !one.scan.changedDuringScan &&
      isComplete(one) &&
      one.isStateStable &&
      (missingOf(one) === 0 || hasAwaitedLeases);
    if (!hasAwaitedLeases) attempt = addScan(attempt, await scan(false, null, true), 0);
    for (const budget of FROZEN_BYTES) {
      if (isConsistent(attempt)) return attempt;
      // The next scan uses these trees as its bases, so stored content is not read again during the freeze.
      await trees.publish(attempt);
      const awaitsLeases = missingOf(attempt) > 0 && !hasAwaitedLeases;
      const scanFrozen = (): Promise<{ result: ScannedTrees; frozenMs: number }> =>
        freezing.runFrozen(row.id, (isFrozen) =>
          scan(isFrozen, isFrozen ? budget : null, isFrozen && awaitsLeases),
        );
      const { result, frozenMs } = isLocked ? await scanFrozen() : await sessionMutex.run(row.id, scanFrozen);
      attempt = addScan(attempt, result, frozenMs);
      if (awaitsLeases) hasAwaitedLeases = true;
      if (!isComplete(attempt)) attempt = addScan(attempt, await scan(false, null), 0);
    }
    if (isConsistent(attempt)) return attempt;
    throw new HoldfastError('conflict', `No snapshot of ${row.name} was created`, {
      why: `its files changed during each of ${FROZEN_BYTES.length + 1} scans`,
      next: 'try again when fewer files are being written',
    });
  }
}

function isComplete({ scan, state }: ScannedTrees): boolean {
  return scan.complete && (state?.complete ?? true);
}

/** Files that could not be read. */
function missingOf({ scan, state }: ScannedTrees): number {
  return scan.missing + (state?.missing ?? 0);
}

/** Adds up several scans. A file that changed between two of them counts each time. */
function addScan(
  before: ScanAttempt,
  { scan, state, isStateStable }: ScannedTrees,
  frozenMs: number,
): ScanAttempt {
  const { changedFiles, changedBytes, newObjects, newBytes, scanMs, readMs } = before.scan;
  return {
    scan: {
      ...scan,
      changedFiles: changedFiles + scan.changedFiles,
      changedBytes: changedBytes + scan.changedBytes,
      newObjects: newObjects + scan.newObjects,
      newBytes: newBytes + scan.newBytes,
      scanMs: scanMs + scan.scanMs,
      readMs: readMs + scan.readMs,
    },
    state,
    isStateStable,
    frozenMs: before.frozenMs + frozenMs,
  };
}
