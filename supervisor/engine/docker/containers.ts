import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ContainerCreateOptions } from 'dockerode';
import type { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { DockerApi } from './api.ts';
import { isRefusal } from './errors.ts';
import { LABEL } from './labels.ts';
import type { Naming } from './labels.ts';
import {
  ContainerListReply,
  ContainerReply,
  ContainerSizeReply,
  CreatedReply,
  ImageListReply,
  ProcessesReply,
  VolumeListReply,
  VolumeReply,
  parseReply,
} from './replies.ts';
import type { ContainerSummary } from './replies.ts';

export type InspectedContainer = z.infer<typeof ContainerReply>;

/** Timeouts in ms: for calls that only read, and for calls that make the engine work. */
export interface EngineTimeouts {
  readonly queryMs: number;
  readonly operationMs: number;
}

const REMOVE_TRIES = 20;
const REMOVE_RETRY_MS = 100;

const PAUSE_ATTEMPTS = 3;
const UNPAUSE_ATTEMPTS = 10;
const UNPAUSE_RETRY_MS = 100;

/** Containers and volumes of one home, found by our names and labels. Every method may be repeated. */
export class Containers {
  readonly #api: () => Promise<DockerApi>;
  readonly #naming: Naming;
  readonly #timeouts: EngineTimeouts;

  constructor(api: () => Promise<DockerApi>, naming: Naming, timeouts: EngineTimeouts) {
    this.#api = api;
    this.#naming = naming;
    this.#timeouts = timeouts;
  }

  async list(sessionId?: string): Promise<ContainerSummary[]> {
    const what = 'Cannot list the containers of this home';
    const answer = await (
      await this.#api()
    ).json({
      what,
      method: 'GET',
      path: '/containers/json',
      query: { all: true, filters: this.#naming.filters(sessionId) },
      timeoutMs: this.#timeouts.queryMs,
    });
    return parseReply(ContainerListReply, what, answer);
  }

  async inspect(id: string): Promise<InspectedContainer | null> {
    const what = 'Cannot inspect a container';
    try {
      const path = `/containers/${id}/json`;
      const api = await this.#api();
      const answer = await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs });
      return parseReply(ContainerReply, what, answer);
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      throw error;
    }
  }

  /** What the container has written to its own layer, in bytes. */
  async measure(what: string, id: string): Promise<number> {
    const path = `/containers/${id}/json`;
    const api = await this.#api();
    const query = { size: true };
    const answer = await api.json({
      ...{ what, method: 'GET', path, query },
      timeoutMs: this.#timeouts.operationMs,
    });
    return parseReply(ContainerSizeReply, what, answer).SizeRw;
  }

  /** Creates a container and returns its id. A stale container of ours that has the name is removed first. */
  async create(what: string, name: string, body: ContainerCreateOptions): Promise<string> {
    const api = await this.#api();
    const attempt = async (): Promise<string> => {
      const answer = await api.json({
        what,
        method: 'POST',
        path: '/containers/create',
        query: { name },
        body,
        timeoutMs: this.#timeouts.operationMs,
      });
      return parseReply(CreatedReply, what, answer).Id;
    };
    try {
      return await attempt();
    } catch (error) {
      if (!isRefusal(error, 409)) throw error;
      const holder = await this.inspect(name);
      if (holder !== null && holder.Config.Labels?.[LABEL.home] !== this.#naming.homeId) {
        throw new HoldfastError('sandbox_failed', what, {
          why: `a container that does not belong to this home has the name ${name}`,
          next: `inspect it with \`docker inspect ${name}\`, then rename or remove it`,
          details: { container: name },
          cause: error,
        });
      }
      if (holder !== null) await this.remove(what, holder.Id);
      return attempt();
    }
  }

  async start(what: string, id: string): Promise<void> {
    await this.#post(what, id, 'start', this.#timeouts.operationMs, [304]);
  }

  /** The container's state in the engine's terms (`running`, `paused`, `exited`, …); null if it does not exist. */
  async status(id: string): Promise<string | null> {
    return (await this.inspect(id))?.State.Status ?? null;
  }

  async countProcesses(what: string, id: string): Promise<number> {
    const api = await this.#api();
    const path = `/containers/${id}/top`;
    const reply = await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs });
    return parseReply(ProcessesReply, what, reply).Processes.length;
  }

  /**
   * Pauses a container. After an error response its state decides, because the error texts differ between engine
   * versions.
   */
  async pause(what: string, id: string): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#post(what, id, 'pause', this.#timeouts.queryMs);
        return;
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const status = await this.status(id);
        if (status === 'paused') return;
        // On a busy machine the freezer sometimes gives up and thaws the processes again.
        if (status !== 'running' || attempt === PAUSE_ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Like `pause`. When another process unpauses it at the same time, the engine may show it as paused for a moment
   * longer.
   */
  async unpause(what: string, id: string): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#post(what, id, 'unpause', this.#timeouts.queryMs);
        return;
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const status = await this.status(id);
        if (status === 'running') return;
        if (status !== 'paused' || attempt === UNPAUSE_ATTEMPTS) throw error;
        await sleep(UNPAUSE_RETRY_MS);
      }
    }
  }

  /**
   * Sends TERM and waits up to `graceMs` for the container to exit; `remove` kills what is left. A paused container
   * is unpaused first. An error response must not prevent the removal.
   */
  async stop(what: string, id: string, state: string, graceMs: number): Promise<void> {
    if (graceMs <= 0 || (state !== 'running' && state !== 'paused')) return;
    const api = await this.#api();
    try {
      if (state === 'paused') await this.unpause(what, id);
      const path = `/containers/${id}/kill`;
      await api.json({
        what,
        method: 'POST',
        path,
        query: { signal: 'TERM' },
        timeoutMs: this.#timeouts.queryMs,
      });
    } catch (error) {
      // The container has exited or is gone, or it cannot be signalled: no grace period.
      if (!isRefusal(error)) throw error;
      return;
    }
    const grace = AbortSignal.timeout(graceMs);
    try {
      const path = `/containers/${id}/wait`;
      await api.json({
        what,
        method: 'POST',
        path,
        timeoutMs: graceMs + this.#timeouts.queryMs,
        signal: grace,
      });
    } catch (error) {
      if (!grace.aborted && !isRefusal(error)) throw error;
    }
  }

  /** Stops a container: TERM, then KILL. No process of it is left afterwards. */
  async end(what: string, id: string, seconds: number): Promise<void> {
    const api = await this.#api();
    await api.json({
      what,
      method: 'POST',
      path: `/containers/${id}/stop`,
      query: { t: seconds },
      timeoutMs: seconds * 1000 + this.#timeouts.operationMs,
      acceptedStatuses: [304],
    });
  }

  /** Prepared images of this home: by their labels, and by the name that we give, because an image made from one has its labels. */
  async listPreparedImages(): Promise<{ reference: string; setupId: string }[]> {
    const what = 'Cannot list the images of this home';
    const api = await this.#api();
    const answer = await api.json({
      what,
      method: 'GET',
      path: '/images/json',
      query: { filters: this.#naming.filters() },
      timeoutMs: this.#timeouts.queryMs,
    });
    return parseReply(ImageListReply, what, answer).flatMap(({ RepoTags, Labels }) => {
      const setupId = Labels?.[LABEL.session];
      if (setupId === undefined || Labels?.[LABEL.role] !== 'prepared') return [];
      const { repository, tag } = this.#naming.preparedImage(setupId);
      const reference = `${repository}:${tag}`;
      return RepoTags?.includes(reference) === true ? [{ reference, setupId }] : [];
    });
  }

  /** Removes an image that no container uses. The images it was made from stay, also those without a name. */
  async removeImage(reference: string): Promise<void> {
    const api = await this.#api();
    const what = `Cannot remove image ${reference}`;
    try {
      const path = `/images/${reference}`;
      const query = { noprune: true };
      await api.json({ what, method: 'DELETE', path, query, timeoutMs: this.#timeouts.operationMs });
    } catch (error) {
      if (!isRefusal(error, 404)) throw error;
    }
  }

  /** Kills and removes a container with its anonymous volumes. Returns when it is gone. */
  async remove(what: string, id: string): Promise<void> {
    const api = await this.#api();
    for (let tries = 1; ; tries += 1) {
      try {
        await api.json({
          what,
          method: 'DELETE',
          path: `/containers/${id}`,
          query: { force: true, v: true },
          timeoutMs: this.#timeouts.operationMs,
        });
        return;
      } catch (error) {
        if (isRefusal(error, 404)) return;
        // Another removal is under way, or its filesystem is still being released.
        if (!isRefusal(error, 409, 500) || tries >= REMOVE_TRIES) throw error;
        await sleep(REMOVE_RETRY_MS);
      }
    }
  }

  async hasImage(reference: string): Promise<boolean> {
    const what = `Cannot inspect image ${reference}`;
    try {
      const api = await this.#api();
      const path = `/images/${reference}/json`;
      await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs });
      return true;
    } catch (error) {
      if (isRefusal(error, 404)) return false;
      throw error;
    }
  }

  async listVolumes(): Promise<{ name: string; labels: Readonly<Record<string, string>> }[]> {
    const what = 'Cannot list the volumes of this home';
    const answer = await (
      await this.#api()
    ).json({
      what,
      method: 'GET',
      path: '/volumes',
      query: { filters: this.#naming.filters() },
      timeoutMs: this.#timeouts.queryMs,
    });
    const volumes = parseReply(VolumeListReply, what, answer).Volumes ?? [];
    return volumes.map((volume) => ({ name: volume.Name, labels: volume.Labels ?? {} }));
  }

  async hasVolume(name: string): Promise<boolean> {
    const what = `Cannot inspect volume ${name}`;
    try {
      const path = `/volumes/${name}`;
      const api = await this.#api();
      await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs });
      return true;
    } catch (error) {
      if (isRefusal(error, 404)) return false;
      throw error;
    }
  }

  /**
   * Creates a volume unless it exists; one of this name that is not ours is an error. Returns the identity of this
   * volume: a later one of the same name has another.
   */
  async createVolume(name: string, labels: Record<string, string>): Promise<string> {
    const what = `Cannot create volume ${name}`;
    const answer = await (
      await this.#api()
    ).json({
      what,
      method: 'POST',
      path: '/volumes/create',
      body: { Name: name, Labels: { ...labels, [LABEL.instance]: randomBytes(8).toString('hex') } },
      timeoutMs: this.#timeouts.queryMs,
    });
    const volume = parseReply(VolumeReply, what, answer);
    if (volume.Labels?.[LABEL.home] !== this.#naming.homeId) {
      throw new HoldfastError('engine_error', what, {
        why: 'a volume that does not belong to this home has this name',
        next: `inspect it with \`docker volume inspect ${name}\`, then remove it`,
        details: { volume: name },
      });
    }
    return volume.Labels[LABEL.instance] ?? '';
  }

  async removeVolume(name: string): Promise<void> {
    const api = await this.#api();
    const what = `Cannot remove volume ${name}`;
    try {
      const path = `/volumes/${name}`;
      await api.json({ what, method: 'DELETE', path, timeoutMs: this.#timeouts.operationMs });
    } catch (error) {
      if (!isRefusal(error, 404)) throw error;
    }
  }

  async #post(
    what: string,
    id: string,
    verb: string,
    timeoutMs: number,
    alsoFine: number[] = [],
  ): Promise<void> {
    const api = await this.#api();
    await api.json({
      what,
      method: 'POST',
      path: `/containers/${id}/${verb}`,
      timeoutMs,
      acceptedStatuses: alsoFine,
    });
  }
}
