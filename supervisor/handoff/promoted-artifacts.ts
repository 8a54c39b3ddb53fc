import { createHash } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { z } from 'zod';
import {
  ARTIFACT_LIMITS,
  type Artifact,
  type ArtifactFile,
  PATCH_NAME,
  artifactList,
} from '../../protocol/artifacts.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { ArtifactIdSchema } from '../../protocol/ids.ts';
import type { Envelope, ManifestStatement } from '../../protocol/manifest.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Ids } from '../base/ids.ts';
import { isoTime } from '../base/iso-time.ts';
import type { EventLog } from '../history/event-log.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { PromotedArtifactRow, PromotedArtifactRows } from '../store/promoted-artifacts.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import { type Content, type Written, readArtifact, writeArtifact } from './artifact-writer.ts';
import { LeftOut, chosenFiles, chosenPatch } from './chosen-files.ts';
import type { HandoffService } from './handoff-service.ts';

const CREATE = 'artifact.create';
const CreatedSchema = z.object({ artifact: ArtifactIdSchema });
/** Characters of one page, so that the answer fits into one line of at most 1 MiB. */
const PAGE_CHARACTERS = 256 * 1024;

export interface PromotedArtifactsOptions {
  readonly home: Pick<Home, 'promoted' | 'promotedArtifact'>;
  readonly rows: PromotedArtifactRows;
  readonly operations: Operations;
  readonly events: Pick<EventLog, 'append'>;
  readonly sessions: Pick<Sessions, 'get'>;
  readonly stores: Pick<LineageStores, 'use'>;
  readonly snapshotService: Pick<SnapshotService, 'findSession'>;
  readonly handoffs: Pick<HandoffService, 'begin'>;
  /** Signs what is known of the session, about this subject. */
  readonly sign: (
    session: SessionRow,
    artifact: string,
    subject: ManifestStatement['subject'],
  ) => Promise<Envelope>;
  readonly ids: Ids;
  /** Path of the worker program that compares lines. */
  readonly lineWorker: string | URL;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Results that people keep: chosen files, or a patch. They stay until somebody removes them, without session and workspace too. */
export class PromotedArtifacts {
  readonly #options: PromotedArtifactsOptions;
  /** Their files have no row yet. */
  readonly #creating = new Set<string>();

  constructor(options: PromotedArtifactsOptions) {
    this.#options = options;
  }

  async create(
    { session: reference, kind, name, paths = [], unreviewed, opId }: Params<'artifact/create'>,
    signal: AbortSignal,
  ): Promise<Result<'artifact/create'>> {
    const { home, handoffs, ids, operations, snapshotService, stores, lineWorker, now } = this.#options;
    const first = operations.findResult(opId, CREATE);
    if (first !== null) return this.#created(CreatedSchema.parse(first.result).artifact);
    this.#requireSpace(0);
    const begin = { session: reference, unreviewed, opId: opId === undefined ? undefined : `${opId}.begin` };
    const begun = await handoffs.begin(begin, signal);
    const session = snapshotService.findSession(begun.sessionId);
    const id = ids.next('art');
    const file = home.promotedArtifact(id);
    const leftOut = new LeftOut();
    this.#creating.add(id);
    try {
      const written = await stores.use(session.lineage, async (store) => {
        const trees = { before: parseHash(begun.base.root), after: parseHash(begun.target.root) };
        if (store.find(trees.before) === null || store.find(trees.after) === null) throw gone();
        const contents =
          kind === 'files'
            ? chosenFiles(store, trees, paths, leftOut, signal)
            : asFile(chosenPatch(store, trees, paths, { leftOut, lineWorker, signal }));
        return await writeArtifact(file, contents);
      });
      if (written.files.length === 0 || (kind === 'patch' && written.bytes === 0))
        throw nothingChosen(begun.sessionName, paths);
      const row: PromotedArtifactRow = {
        id,
        kind,
        name: name ?? begun.sessionName.slice(0, 100),
        createdAt: now(),
        sessionId: session.id,
        sessionName: session.name,
        profile: session.profile,
        snapshotId: begun.target.snapshot,
        files: written.files.length,
        bytes: written.bytes,
        sha256: createHash('sha256').update(artifactList(written.files)).digest('hex'),
        leftOut: leftOut.count,
      };
      await failpoint('artifact.after-file');
      signal.throwIfAborted();
      const recorded = await this.#record(session, row, written, opId);
      await failpoint('artifact.after-row');
      // The same request was answered meanwhile.
      if (recorded !== id) {
        await rm(file, { force: true });
        return this.#created(recorded);
      }
      return { artifact: shown(row), leftOutPaths: leftOut.paths };
    } catch (error) {
      // Not if its row was committed: what fails after that is the answer alone.
      if (this.#options.rows.find(id) === null) await rm(file, { force: true });
      throw error;
    } finally {
      this.#creating.delete(id);
    }
  }

  list({ session }: Params<'artifact/list'>): Result<'artifact/list'> {
    const { rows, sessions, snapshotService } = this.#options;
    // The id of a deleted session is no reference any more.
    const sessionId =
      session === undefined ? null : (sessions.get(session)?.id ?? snapshotService.findSession(session).id);
    return { artifacts: rows.list(sessionId).map(shown) };
  }

  show({ artifact }: Params<'artifact/show'>): Result<'artifact/show'> {
    const row = this.#find(artifact);
    const envelope = this.#options.rows.envelopeOf(row.id);
    if (envelope === null) throw notFound(artifact);
    return { artifact: shown(row), envelope };
  }

  files({ artifact, from = 0 }: Params<'artifact/files'>): Result<'artifact/files'> {
    const all = this.#options.rows.filesOf(this.#find(artifact).id);
    const files: ArtifactFile[] = [];
    let characters = 0;
    for (const file of all.slice(from, from + ARTIFACT_LIMITS.entries)) {
      characters += 150 + 3 * file.path.length;
      if (files.length > 0 && characters > PAGE_CHARACTERS) break;
      files.push(file);
    }
    const next = from + files.length;
    return { files, next: next < all.length ? next : null };
  }

  async read({ artifact, offset }: Params<'artifact/read'>): Promise<Buffer> {
    const { id } = this.#find(artifact);
    return await readArtifact(this.#options.home.promotedArtifact(id), offset, ARTIFACT_LIMITS.answerBytes);
  }

  /** A file whose row is gone is garbage, should this be killed in between. */
  async remove({ artifact }: Params<'artifact/remove'>): Promise<Result<'artifact/remove'>> {
    const { home, rows } = this.#options;
    const removed = rows.remove(artifact);
    await failpoint('artifact.after-removal');
    if (removed) await rm(home.promotedArtifact(artifact), { force: true });
    return { removed };
  }

  /** Names of files that belong to no artifact: left by a supervisor that was killed. */
  async findUnused(): Promise<string[]> {
    const { home, rows } = this.#options;
    return (await readdir(home.promoted)).filter((name) => {
      const [id = ''] = name.split('.', 1);
      return !this.#creating.has(id) && (id !== name || rows.find(id) === null);
    });
  }

  async #record(
    session: SessionRow,
    row: PromotedArtifactRow,
    { files }: Written,
    opId: string | undefined,
  ): Promise<string> {
    const { rows, operations, events, sessions, sign } = this.#options;
    const [only] = files;
    const envelope = await sign(session, row.id, [
      { name: 'files', digest: { sha256: row.sha256 } },
      ...(row.kind === 'patch' && only !== undefined
        ? [{ name: PATCH_NAME, digest: { sha256: only.sha256 } }]
        : []),
    ]);
    const { result } = operations.runOnce(opId, CREATE, () => {
      this.#requireSpace(row.bytes);
      rows.insert(row, files, envelope);
      const { id: artifactId, kind, snapshotId: snapshot, bytes, sha256 } = row;
      const data = { artifactId, kind, snapshot, files: row.files, bytes, sha256 };
      // The history of a session that was deleted meanwhile has ended.
      if (sessions.get(session.id)?.status !== 'deleted')
        events.append(session.id, [{ type: 'artifact.created', data }]);
      return { artifact: row.id };
    });
    return CreatedSchema.parse(result).artifact;
  }

  #created(id: string): Result<'artifact/create'> {
    return { artifact: shown(this.#find(id)), leftOutPaths: [] };
  }

  #requireSpace(bytes: number): void {
    const total = this.#options.rows.totals();
    const { artifacts, totalBytes } = ARTIFACT_LIMITS;
    if (total.artifacts < artifacts && total.bytes + bytes <= totalBytes) return;
    throw new HoldfastError('output_limit', 'The artifact was not created', {
      why: `a home keeps at most ${artifacts} artifacts and ${totalBytes / 2 ** 30} GiB of them`,
      next: 'remove some with `holdfast artifact rm`; `holdfast artifact list` names them',
    });
  }

  #find(id: string): PromotedArtifactRow {
    const row = this.#options.rows.find(id);
    if (row === null) throw notFound(id);
    return row;
  }
}

async function* asFile(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Content> {
  yield await Promise.resolve({ path: `${WORKSPACE}/${PATCH_NAME}`, executable: false, size: null, bytes });
}

function shown({ sessionId, snapshotId, createdAt, ...row }: PromotedArtifactRow): Artifact {
  return { ...row, session: sessionId, snapshot: snapshotId, createdAt: isoTime(createdAt) };
}

function notFound(id: string): HoldfastError {
  return new HoldfastError('not_found', `There is no artifact ${id}`, {
    next: 'list them with `holdfast artifact list`',
  });
}

function gone(): HoldfastError {
  return new HoldfastError('not_found', 'The artifact was not created', {
    why: 'the snapshot that it was taken from was deleted meanwhile',
    next: 'create it again',
  });
}

function nothingChosen(session: string, paths: readonly string[]): HoldfastError {
  return new HoldfastError('not_found', `No artifact of ${session} was created`, {
    why: paths.length === 0 ? 'nothing has changed' : `no file matches ${paths.join(' ')}`,
    next: 'look at `holdfast workspace ls`, and choose files with --paths',
  });
}
