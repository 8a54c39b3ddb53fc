import type { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineImages, ImageFacts, PullProgress } from '../port.ts';
import type { DockerApi } from './api.ts';
import { missingImageError } from './helper-containers.ts';
import type { EngineTimeouts } from './containers.ts';
import { EngineRefusal, isRefusal } from './errors.ts';
import { LABEL } from './labels.ts';
import { DistributionReply, ImageReply, PullLine, parseReply } from './replies.ts';

/** A pull without any progress for this long has stalled. */
const STALLED_MS = 120_000;
/** Names of one image that registries are asked for. */
const MOST_ASKED = 3;

export class DockerImages implements EngineImages {
  readonly #api: () => Promise<DockerApi>;
  readonly #timeouts: EngineTimeouts;

  constructor(api: () => Promise<DockerApi>, timeouts: EngineTimeouts) {
    this.#api = api;
    this.#timeouts = timeouts;
  }

  async has(reference: string): Promise<boolean> {
    return (await this.#inspect(reference)) !== null;
  }

  async identity(reference: string): Promise<string> {
    const image = await this.#inspect(reference);
    if (image === null) throw missingImageError(reference);
    return image.RepoDigests?.[0] ?? image.Id;
  }

  async id(reference: string): Promise<string | null> {
    return (await this.#inspect(reference))?.Id ?? null;
  }

  async isPrepared(reference: string): Promise<boolean> {
    return isOfBuild((await this.#inspect(reference))?.Config?.Labels?.[LABEL.role]);
  }

  async facts(reference: string): Promise<ImageFacts | null> {
    const image = await this.#inspect(withTag(reference));
    if (image === null) return null;
    const labels = image.Config?.Labels ?? {};
    return {
      id: image.Id,
      bytes: image.Size ?? 0,
      isPrepared: isOfBuild(labels[LABEL.role]),
      isPublished: await this.#isPublished(image),
      hasTriggers: (image.Config?.OnBuild ?? []).length > 0,
      hasVolumes: Object.keys(image.Config?.Volumes ?? {}).length > 0,
    };
  }

  /**
   * In the classic store only a pull or a push gives an image a digest. In that of containerd every image has one, which is its id: there
   * a registry has to know it.
   */
  async #isPublished({ Id, RepoDigests }: z.infer<typeof ImageReply>): Promise<boolean> {
    const digests = RepoDigests ?? [];
    if (!digests.some((digest) => digest.endsWith(`@${Id}`))) return digests.length > 0;
    for (const digest of digests.slice(0, MOST_ASKED)) if (await this.#isInRegistry(digest)) return true;
    return false;
  }

  /** False also if the registry cannot be asked. `digest`: NAME@sha256:… */
  async #isInRegistry(digest: string): Promise<boolean> {
    const what = `Cannot ask the registry for ${digest}`;
    try {
      requireValidReference(digest);
      const api = await this.#api();
      const call = { method: 'GET', path: `/distribution/${digest}/json` } as const;
      const answer = await api.json({ what, ...call, timeoutMs: this.#timeouts.operationMs });
      return digest.endsWith(`@${parseReply(DistributionReply, what, answer).Descriptor.digest}`);
    } catch {
      return false;
    }
  }

  async pull(reference: string, progress: (layer: PullProgress) => void, signal: AbortSignal): Promise<void> {
    const what = `Cannot pull ${reference}`;
    requireValidReference(reference);
    const api = await this.#api();
    const tally = new PullTally();
    let stalled: NodeJS.Timeout | undefined;
    try {
      const stream = await api.stream({
        what,
        method: 'POST',
        path: '/images/create',
        query: { fromImage: withTag(reference) },
        timeoutMs: STALLED_MS,
        signal,
      });
      const abort = (): void => void stream.destroy(signal.reason as Error);
      signal.addEventListener('abort', abort, { once: true });
      const watchdog = (): void => {
        clearTimeout(stalled);
        stalled = setTimeout(() => {
          stream.destroy(pullFailed(what, `no progress for ${STALLED_MS / 1000} s`));
        }, STALLED_MS);
      };
      try {
        if (signal.aborted) abort();
        watchdog();
        let rest = '';
        stream.setEncoding('utf8');
        for await (const chunk of stream) {
          watchdog();
          const lines = (rest + String(chunk)).split('\n');
          rest = lines.pop() ?? '';
          for (const text of lines) {
            if (text.trim() === '') continue;
            const line = parseReply(PullLine, what, JSON.parse(text));
            if (line.error !== undefined) throw new EngineRefusal(what, 500, line.error);
            progress(tally.add(line));
          }
        }
      } finally {
        signal.removeEventListener('abort', abort);
        stream.destroy();
      }
    } catch (error) {
      throw this.#pullError(error, reference, what, signal);
    } finally {
      clearTimeout(stalled);
    }
    if (!(await this.has(reference)))
      throw pullFailed(what, 'the engine stopped before the image was complete');
  }

  #pullError(error: unknown, reference: string, what: string, signal: AbortSignal): unknown {
    if (signal.aborted) {
      return new HoldfastError('cancelled', what, { why: 'it was cancelled', cause: error });
    }
    if (!(error instanceof EngineRefusal)) return error;
    if (error.status === 400) return invalidReference(reference, error.reason, error);
    const unknownName =
      error.status === 404 || /manifest unknown|not found|does not exist|no such image/i.test(error.reason);
    // "no such host" is about the registry, not the image.
    if (!unknownName || /no such host|server misbehaving/i.test(error.reason)) {
      return pullFailed(what, error.reason, error);
    }
    return new HoldfastError('image_not_found', `There is no image ${reference}`, {
      why: error.reason,
      next: 'check the name; for a private registry: `docker login REGISTRY`, then `docker pull` it',
      details: { image: reference },
      cause: error,
    });
  }

  async #inspect(reference: string): Promise<z.infer<typeof ImageReply> | null> {
    const what = `Cannot inspect image ${reference}`;
    requireValidReference(reference);
    try {
      const api = await this.#api();
      const path = `/images/${reference}/json`;
      return parseReply(
        ImageReply,
        what,
        await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs }),
      );
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      if (isRefusal(error, 400)) throw invalidReference(reference, error.reason, error);
      throw error;
    }
  }
}

/** Sums up the layers reported so far. */
export class PullTally {
  readonly #layers = new Map<string, { done: number; of: number | null }>();

  add(line: PullLineShape): PullProgress {
    const { id, status = '', progressDetail } = line;
    if (id !== undefined && /^[0-9a-f]{12}$/.test(id)) {
      const layer = this.#layers.get(id) ?? { done: 0, of: null };
      if (status === 'Downloading') {
        layer.done = progressDetail?.current ?? layer.done;
        layer.of = progressDetail?.total ?? layer.of;
      } else if (/^(Download complete|Verifying|Extracting|Pull complete)/.test(status)) {
        layer.done = layer.of ?? layer.done;
      }
      this.#layers.set(id, layer);
    }
    const known = [...this.#layers.values()];
    const total = known.reduce((sum, { of }) => sum + (of ?? 0), 0);
    return {
      doneBytes: known.reduce((sum, { done }) => sum + done, 0),
      totalBytes: total === 0 ? null : total,
      status,
    };
  }
}
type PullLineShape = ReturnType<typeof PullLine.parse>;

/** Also what a build makes on its way has all that its steps wrote. */
export function isOfBuild(role: string | undefined): boolean {
  return role === 'prepared' || role === 'setup';
}

/** Without a tag the engine would pull all tags. */
export function withTag(reference: string): string {
  const name = reference.slice(reference.lastIndexOf('/') + 1);
  return name.includes(':') || name.includes('@') ? reference : `${reference}:latest`;
}

/** The reference becomes part of a URL path and must not contain special parts. */
function requireValidReference(reference: string): void {
  const parts = reference.split('/');
  if (/^[A-Za-z0-9][A-Za-z0-9_.:@/-]*$/.test(reference) && !parts.some((part) => /^\.*$/.test(part))) return;
  throw invalidReference(reference, 'it has characters that image names cannot have');
}

function invalidReference(reference: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('invalid_params', `"${reference}" does not name an image`, {
    why,
    next: 'name it as registry/name:tag or name@sha256:…',
    cause,
  });
}

function pullFailed(what: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('image_pull_failed', what, {
    why,
    next: 'check the connection to the registry, or load the image by hand: `docker load -i FILE`',
    cause,
  });
}
