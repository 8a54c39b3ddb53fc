import { homedir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ConfigurationList, isInConfigFolder } from '../protocol/agent-config.ts';
import {
  APPEND_ENTRIES,
  type DEPLOY_METHODS,
  formatProjectPath,
  PROJECT_LIMITS,
  type ProjectEntry,
  type ProjectTree,
  type SecretDestination,
} from '../protocol/deploy.ts';
import type { DeployResult } from '../protocol/deploy-result.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Params, Result } from '../protocol/methods.ts';
import type { Progress } from '../protocol/wire/shapes.ts';
import { readConfiguration } from './configuration/read-configuration.ts';
import { GitHistory } from './git/history.ts';
import { readOrigin, type TrackedProject } from './origin.ts';
import { requireOutsideHome } from './outside-home.ts';
import { readProfileText, wantedConfiguration, wantsHistory } from './profile-text.ts';
import { type RawPath, toBytes } from './raw-path.ts';
import { type ProjectItem, ProjectReader } from './read-project.ts';

type DeployMethod = keyof typeof DEPLOY_METHODS;

/** The connection to a supervisor, which may be on another machine. */
export interface DeployConnection {
  call<M extends DeployMethod>(
    method: M,
    params: Params<M>,
    options: {
      readonly bytes?: Uint8Array;
      readonly signal?: AbortSignal | undefined;
      readonly onProgress?: ((progress: Progress) => void) | undefined;
    },
  ): Promise<Result<M>>;
}

export interface DeployOptions {
  /** Absolute path of the project on this machine. */
  readonly directory: string;
  /** The home of this machine's installation: agents write there, so nothing below it is ever deployed. */
  readonly home: string;
  /** The same for every attempt: the project is deployed once. */
  readonly opId: string;
  readonly attempts?: number;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** What the setup left with one of its secrets in it is removed. Default: it ends the deploy. */
  readonly removeSecretFiles?: boolean | undefined;
  /** Called with what `agent.config` names before anything of the project is sent. What it throws ends the deploy. */
  readonly onConfiguration?: ((list: ConfigurationList) => Promise<void>) | undefined;
  /**
   * Called with the secrets for all profiles that the project would newly send to hosts of its own choice, before anything of it is sent.
   * What it throws ends the deploy. Without it, such a deploy fails with `confirmation_required`.
   */
  readonly onDestinations?: ((list: readonly SecretDestination[]) => Promise<void>) | undefined;
  /** The person's own HOME; default: that of the process. */
  readonly ownHome?: string;
}

/** Bytes of one message, below what the protocol allows. */
const CHUNK_BYTES = 2 ** 20;
/** Bytes of the paths in one message. */
const CHUNK_PATHS = 2 ** 18;
const ATTEMPTS = 4;
const RETRY_MS = 250;
/** How long the caller waits for an upload to be ended. */
const ABORT_MS = 2_000;
/** Failures of a connection or a supervisor, not of the deploy. */
const INTERRUPTED = ['connection_closed', 'interrupted', 'shutting_down'];

/**
 * Reads a project on this machine, sends it and has it deployed; starts again after a lost connection. Errors: those of `ProjectReader`,
 * `GitHistory` and `profile/deploy/*`.
 */
export async function deployProject(
  connection: DeployConnection,
  options: DeployOptions,
): Promise<DeployResult> {
  const agreed = new Set<SecretDestination>();
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await deployOnce(connection, options, attempt === 1, agreed);
    } catch (error) {
      const isInterrupted = error instanceof HoldfastError && INTERRUPTED.includes(error.code);
      if (!isInterrupted || attempt >= (options.attempts ?? ATTEMPTS) || options.signal?.aborted === true)
        throw error;
      await sleep(RETRY_MS);
    }
  }
}

async function deployOnce(
  connection: DeployConnection,
  options: DeployOptions,
  isFirst: boolean,
  agreed: Set<SecretDestination>,
): Promise<DeployResult> {
  const { home, opId, signal, onProgress } = options;
  const directory = await requireOutsideHome(home, options.directory);
  const profile = await readProfileText(directory);
  const wanted = await wantedConfiguration(profile);
  const configuration =
    wanted === null
      ? null
      : await readConfiguration({ directory, ...wanted, ownHome: options.ownHome ?? homedir(), signal });
  if (configuration !== null && isFirst) await options.onConfiguration?.(configuration.list);
  const begin = { source: directory, profile, opId };
  const begun = await connection.call('profile/deploy/begin', begin, { signal });
  const { upload, result, destinations } = begun;
  const list = configuration?.list ?? null;
  if (result !== null) return { ...result, configuration: list };
  if (upload === null) throw new HoldfastError('internal', 'The supervisor began no upload');
  try {
    // Asked once: where a later attempt finds others, they are refused.
    if (agreed.size === 0 && destinations.length > 0 && options.onDestinations !== undefined) {
      await options.onDestinations(destinations);
      for (const destination of destinations) agreed.add(destination);
    }
    const tracked = await readOrigin(directory, signal);
    const sender = new Sender(connection, upload, options);
    const reader = new ProjectReader(directory, {
      excludedFolder: home,
      // It may hold keys, and what is sent of it has none.
      isExcluded: (path) => isInConfigFolder(path, wanted?.folder),
      signal,
    });
    await sender.send('code', reader.items(), tracked);
    if (begun.history) {
      // The other machine may ask for more than the person wants to send.
      if (!(await wantsHistory(profile)))
        throw new HoldfastError(
          'protocol_error',
          'The supervisor asked for a git history that the profile does not name',
        );
      const history = await GitHistory.read(directory, {
        // The supervisor knows which files workspaces start with, and marks the others.
        isSeeded: () => true,
        requireAllowed: (folder) => requireOutsideHome(home, folder),
        ...(signal === undefined ? {} : { signal }),
      });
      await sender.send('history', history.items(signal), null);
    }
    if (configuration !== null) await sender.send('configuration', configuration.items(), null);
    const ignored = await reader.measureIgnored();
    const commit = {
      ...{ upload, ignored, origin: tracked?.origin ?? null, opId },
      ...(options.removeSecretFiles === true ? { removeSecretFiles: true } : {}),
      ...(agreed.size === 0 ? {} : { destinations: [...agreed] }),
    };
    const deployed = await connection.call('profile/deploy/commit', commit, { signal, onProgress });
    return { ...deployed, configuration: list };
  } catch (error) {
    // The connection may be what failed, and ends the upload too. A supervisor that hangs must not hold up the caller.
    const signal = AbortSignal.timeout(ABORT_MS);
    await connection.call('profile/deploy/abort', { upload }, { signal }).catch(() => undefined);
    throw error;
  }
}

/** Packs items into messages; one is on its way while the next is read. */
export class Sender {
  readonly #connection: DeployConnection;
  readonly #upload: string;
  readonly #options: Pick<DeployOptions, 'signal' | 'onProgress'>;
  #sending: Promise<unknown> = Promise.resolve();
  #entries: ProjectEntry[] = [];
  #paths = 0;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #files = 0;
  #sent = 0;

  constructor(
    connection: DeployConnection,
    upload: string,
    options: Pick<DeployOptions, 'signal' | 'onProgress'>,
  ) {
    this.#connection = connection;
    this.#upload = upload;
    this.#options = options;
  }

  async send(
    tree: ProjectTree,
    items: AsyncIterable<ProjectItem>,
    tracked: TrackedProject | null,
  ): Promise<void> {
    for await (const item of items) {
      const entry = entryOf(item, tracked);
      if (this.#entries.length === APPEND_ENTRIES || this.#paths + entry.path.length > CHUNK_PATHS)
        await this.#flush(tree);
      this.#entries.push(entry);
      this.#paths += entry.path.length + (entry.kind === 'link' ? entry.target.length : 0);
      if (item.kind !== 'file') continue;
      this.#count(item.size);
      for await (const chunk of item.content()) {
        if (this.#bytes + chunk.length > CHUNK_BYTES) await this.#flush(tree);
        // The reader uses its buffer again.
        this.#chunks.push(Buffer.from(chunk));
        this.#bytes += chunk.length;
      }
    }
    await this.#flush(tree);
    await this.#sending;
  }

  #count(size: number): void {
    this.#files += 1;
    this.#sent += size;
    if (this.#files > PROJECT_LIMITS.files || this.#sent > PROJECT_LIMITS.bytes) {
      throw new HoldfastError('profile_invalid', 'The project cannot be deployed', {
        why: `it has more than ${PROJECT_LIMITS.files} files or ${PROJECT_LIMITS.bytes} bytes with its git history`,
        next: 'list what is not code in .holdfastignore; a shallow clone (`git clone --depth`) has less history',
      });
    }
    if (this.#files % 200 === 1) {
      this.#options.onProgress?.({ stage: 'upload', done: this.#files, of: null, unit: 'files' });
    }
  }

  async #flush(tree: ProjectTree): Promise<void> {
    const params = { upload: this.#upload, tree, entries: this.#entries };
    const bytes = Buffer.concat(this.#chunks);
    this.#entries = [];
    this.#paths = 0;
    this.#chunks = [];
    this.#bytes = 0;
    await this.#sending;
    const { signal } = this.#options;
    this.#sending = this.#connection.call('profile/deploy/append', params, { bytes, signal });
    // Awaited before the next message; until then a rejection is not unhandled.
    this.#sending.catch(() => undefined);
  }
}

function entryOf(item: ProjectItem, tracked: TrackedProject | null): ProjectEntry {
  const path = formatProjectPath(item.path.split('/').map(toBytes));
  switch (item.kind) {
    case 'folder':
      return { kind: 'folder', path };
    case 'link':
      return {
        kind: 'link',
        path,
        target: toBytes(item.target).toString('base64'),
        ...headOf(item.path, tracked),
      };
    case 'file':
      return {
        kind: 'file',
        path,
        size: item.size,
        executable: item.executable,
        ...headOf(item.path, tracked),
      };
  }
}

function headOf(path: RawPath, tracked: TrackedProject | null): { readonly head?: string | null } {
  return tracked === null ? {} : { head: tracked.blobs.get(path) ?? null };
}
