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
  CreatedReply,
  VolumeListReply,
  VolumeReply,
  parseReply,
} from './replies.ts';
import type { ContainerSummary } from './replies.ts';

export type InspectedContainer = z.infer<typeof ContainerReply>;

/** Milliseconds: what only asks, and what makes the engine work. */
export interface EngineTimeouts {
  readonly queryMs: number;
  readonly operationMs: number;
}

const REMOVE_TRIES = 20;
const REMOVE_PAUSE_MS = 100;

const FREEZE_ATTEMPTS = 3;
const THAW_ATTEMPTS = 10;
const THAW_PAUSE_MS = 100;

/** Containers and volumes of one home, by our names and labels; every verb may be repeated. */
export class Containers {
  readonly #api: () => Promise<DockerApi>;
  readonly #naming: Naming;
  readonly #patience: EngineTimeouts;

  constructor(api: () => Promise<DockerApi>, naming: Naming, patience: EngineTimeouts) {
    this.#api = api;
    this.#naming = naming;
    this.#patience = patience;
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
      timeoutMs: this.#patience.queryMs,
    });
    return parseReply(ContainerListReply, what, answer);
  }

  async inspect(id: string): Promise<InspectedContainer | null> {
    const what = 'Cannot look at a container';
    try {
      const path = `/containers/${id}/json`;
      const api = await this.#api();
      const answer = await api.json({ what, method: 'GET', path, timeoutMs: this.#patience.queryMs });
      return parseReply(ContainerReply, what, answer);
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      throw error;
    }
  }

  /** The id of the new container. One that has the name already and is ours is stale and makes room. */
  async create(what: string, name: string, body: ContainerCreateOptions): Promise<string> {
    const api = await this.#api();
    const attempt = async (): Promise<string> => {
      const answer = await api.json({
        what,
        method: 'POST',
        path: '/containers/create',
        query: { name },
        body,
        timeoutMs: this.#patience.operationMs,
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
          why: `a container that is not ours has the name ${name}`,
          next: `look at it with \`docker inspect ${name}\`, then rename or remove it`,
          details: { container: name },
          cause: error,
        });
      }
      if (holder !== null) await this.remove(what, holder.Id);
      return attempt();
    }
  }

  async start(what: string, id: string): Promise<void> {
    await this.#post(what, id, 'start', this.#patience.operationMs, [304]);
  }

  /** What the container does now, in the engine's words (`running`, `paused`, `exited`, …); null when there is none. */
  async status(id: string): Promise<string | null> {
    return (await this.inspect(id))?.State.Status ?? null;
  }

  /** What the container does after a refusal decides, because every engine version words its refusals in its own way. */
  async pause(what: string, id: string): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#post(what, id, 'pause', this.#patience.queryMs);
        return;
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const status = await this.status(id);
        if (status === 'paused') return;
        // On a busy machine the freezer gives up now and then, and thaws what it had frozen.
        if (status !== 'running' || attempt === FREEZE_ATTEMPTS) throw error;
      }
    }
  }

  /** As `pause`. Where somebody else resumes the container at the same time, the engine may show it as paused for a moment longer. */
  async unpause(what: string, id: string): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#post(what, id, 'unpause', this.#patience.queryMs);
        return;
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const status = await this.status(id);
        if (status === 'running') return;
        if (status !== 'paused' || attempt === THAW_ATTEMPTS) throw error;
        await sleep(THAW_PAUSE_MS);
      }
    }
  }

  /**
   * TERM, and up to `graceMs` for an end of its own; `remove` kills what is left. A frozen one is thawed first. What the engine refuses
   * here must not keep the container from being removed.
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
        timeoutMs: this.#patience.queryMs,
      });
    } catch (error) {
      // Gone or ended already, or it gets no time to end by itself.
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
        timeoutMs: graceMs + this.#patience.queryMs,
        signal: grace,
      });
    } catch (error) {
      if (!grace.aborted && !isRefusal(error)) throw error;
    }
  }

  /** Kills it if it lives; anonymous volumes of its image go with it. Comes back when it is gone. */
  async remove(what: string, id: string): Promise<void> {
    const api = await this.#api();
    for (let tries = 1; ; tries += 1) {
      try {
        await api.json({
          what,
          method: 'DELETE',
          path: `/containers/${id}`,
          query: { force: true, v: true },
          timeoutMs: this.#patience.operationMs,
        });
        return;
      } catch (error) {
        if (isRefusal(error, 404)) return;
        // Being removed by somebody else, or its filesystem is still let go of.
        if (!isRefusal(error, 409, 500) || tries >= REMOVE_TRIES) throw error;
        await sleep(REMOVE_PAUSE_MS);
      }
    }
  }

  async hasImage(reference: string): Promise<boolean> {
    const what = `Cannot look for image ${reference}`;
    try {
      const api = await this.#api();
      const path = `/images/${reference}/json`;
      await api.json({ what, method: 'GET', path, timeoutMs: this.#patience.queryMs });
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
      timeoutMs: this.#patience.queryMs,
    });
    const volumes = parseReply(VolumeListReply, what, answer).Volumes ?? [];
    return volumes.map((volume) => ({ name: volume.Name, labels: volume.Labels ?? {} }));
  }

  async hasVolume(name: string): Promise<boolean> {
    const what = `Cannot look at volume ${name}`;
    try {
      const path = `/volumes/${name}`;
      const api = await this.#api();
      await api.json({ what, method: 'GET', path, timeoutMs: this.#patience.queryMs });
      return true;
    } catch (error) {
      if (isRefusal(error, 404)) return false;
      throw error;
    }
  }

  /**
   * One that is there already stays as it is; a volume of that name that is not ours is refused. The answer is the identity
   * of its life: another one of the same name, made after it was pruned, has another.
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
      timeoutMs: this.#patience.queryMs,
    });
    const volume = parseReply(VolumeReply, what, answer);
    if (volume.Labels?.[LABEL.home] !== this.#naming.homeId) {
      throw new HoldfastError('engine_error', what, {
        why: 'a volume that is not ours has this name',
        next: `look at it with \`docker volume inspect ${name}\`, then remove it`,
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
      await api.json({ what, method: 'DELETE', path, timeoutMs: this.#patience.operationMs });
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
