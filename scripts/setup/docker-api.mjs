// The few calls to a Docker engine that setting up needs, over its unix socket, with nothing installed.
import { request } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { reasonOf } from './project.mjs';

/** @typedef {{ Id: string, Labels?: Record<string, string> | null, Names?: string[], Name?: string }} Labelled */

export class DockerApi {
  /** @param {string} socket */
  constructor(socket) {
    this.socket = socket;
  }

  /**
   * @param {string} method @param {string} path
   * @param {{ body?: import('node:stream').Readable, onLine?: (line: string) => void, timeoutMs?: number }} [options]
   * @returns {Promise<{ status: number, text: string }>} text is empty where lines were asked for
   */
  call(method, path, { body, onLine, timeoutMs = 30_000 } = {}) {
    return new Promise((resolve, reject) => {
      const outgoing = request({
        socketPath: this.socket,
        method,
        path,
        timeout: timeoutMs,
        headers: { host: 'docker' },
      });
      outgoing.on('timeout', () =>
        outgoing.destroy(new Error(`the engine did not answer within ${timeoutMs} ms`)),
      );
      outgoing.on('error', reject);
      outgoing.on('response', (answer) => {
        const status = answer.statusCode ?? 0;
        let text = '';
        answer.setEncoding('utf8');
        answer.on('error', reject);
        answer.on('data', (chunk) => {
          text += chunk;
          if (onLine === undefined || status >= 400) return;
          const lines = text.split('\n');
          text = lines.pop() ?? '';
          for (const line of lines) if (line.trim() !== '') onLine(line);
        });
        answer.on('end', () => {
          if (onLine !== undefined && status < 400 && text.trim() !== '') onLine(text);
          resolve({ status, text });
        });
      });
      if (body === undefined) outgoing.end();
      else {
        body.on('error', (error) => outgoing.destroy(error));
        body.pipe(outgoing);
      }
    });
  }

  /** @param {string} path */
  async json(path) {
    const { status, text } = await this.call('GET', path);
    if (status >= 400) throw new Error(`the engine refused ${path}: ${messageOf(text)}`);
    return JSON.parse(text);
  }

  /** @returns {Promise<string | undefined>} why the engine does not answer, or undefined when it does */
  async ping() {
    try {
      const { status, text } = await this.call('GET', '/_ping', { timeoutMs: 5_000 });
      return status === 200 ? undefined : `it answered ${status} ${messageOf(text)}`;
    } catch (error) {
      return reasonOf(error);
    }
  }

  /** @param {string} reference */
  async hasImage(reference) {
    const { status, text } = await this.call('GET', `/images/${reference}/json`);
    if (status !== 200 && status !== 404)
      throw new Error(`the engine cannot look up ${reference}: ${messageOf(text)}`);
    return status === 200;
  }

  /** @param {string} source an image @param {string} reference `repository:tag` that it also gets */
  async tag(source, reference) {
    const [repository, tag] = splitReference(reference);
    const query = new URLSearchParams({ repo: repository, tag });
    const { status, text } = await this.call('POST', `/images/${source}/tag?${query}`);
    if (status >= 400) throw new Error(`the engine cannot tag ${reference}: ${messageOf(text)}`);
  }

  /**
   * @param {string} reference @param {(doneBytes: number, ofBytes: number, unpacking: boolean) => void} onProgress
   */
  async pull(reference, onProgress) {
    const [repository, tag] = splitReference(reference);
    /** @type {Map<string, { done: number, of: number }>} */
    const layers = new Map();
    /** @type {string | undefined} */
    let failure;
    const query = new URLSearchParams({ fromImage: repository, tag });
    const { status, text } = await this.call('POST', `/images/create?${query}`, {
      timeoutMs: 120_000,
      onLine: (line) => {
        const event = JSON.parse(line);
        if (typeof event.error === 'string') failure = event.error;
        const { current, total } = event.progressDetail ?? {};
        if (event.status === 'Downloading' && typeof total === 'number') {
          layers.set(event.id, { done: current, of: total });
        } else if (event.status === 'Download complete') {
          const layer = layers.get(event.id);
          if (layer !== undefined) layer.done = layer.of;
        }
        let done = 0;
        let of = 0;
        for (const layer of layers.values()) {
          done += layer.done;
          of += layer.of;
        }
        onProgress(done, of, event.status === 'Extracting');
      },
    });
    if (status >= 400) throw new Error(messageOf(text));
    if (failure !== undefined) throw new Error(failure);
  }

  /**
   * Makes an image of a root filesystem.
   * @param {import('node:stream').Readable} tar @param {string} reference @param {string[]} changes Dockerfile instructions
   */
  async importImage(tar, reference, changes) {
    const query = new URLSearchParams({ fromSrc: '-' });
    for (const change of changes) query.append('changes', change);
    /** @type {string | undefined} */
    let id;
    /** @type {string | undefined} */
    let failure;
    const { status, text } = await this.call('POST', `/images/create?${query}`, {
      body: tar,
      timeoutMs: 300_000,
      onLine: (line) => {
        const event = JSON.parse(line);
        if (typeof event.error === 'string') failure = event.error;
        else if (typeof event.status === 'string' && event.status.startsWith('sha256:')) id = event.status;
      },
    });
    if (status >= 400) throw new Error(`the engine refused the image: ${messageOf(text)}`);
    if (failure !== undefined || id === undefined) {
      throw new Error(`the engine did not take the image: ${failure ?? 'it named no id'}`);
    }
    // Tagged only when it is whole: a tag that exists is an image that works.
    await this.tag(id, reference);
  }

  /**
   * Builds an image without a network and without asking a registry.
   * @param {import('node:stream').Readable} context a tar with a Dockerfile @param {string} reference
   */
  async build(context, reference) {
    const query = new URLSearchParams({ t: reference, networkmode: 'none', rm: '1', forcerm: '1' });
    /** @type {string | undefined} */
    let failure;
    const { status, text } = await this.call('POST', `/build?${query}`, {
      body: context,
      timeoutMs: 600_000,
      onLine: (line) => {
        const event = JSON.parse(line);
        if (typeof event.error === 'string') failure = event.error;
      },
    });
    if (status >= 400) throw new Error(`the engine refused to build the image: ${messageOf(text)}`);
    if (failure !== undefined) throw new Error(`the image could not be built: ${failure}`);
  }

  /**
   * @param {string[]} references @param {import('node:stream').Writable} out gets an archive of them
   * @returns {Promise<void>}
   */
  save(references, out) {
    const query = references.map((reference) => `names=${encodeURIComponent(reference)}`).join('&');
    return new Promise((resolve, reject) => {
      const outgoing = request({
        socketPath: this.socket,
        path: `/images/get?${query}`,
        headers: { host: 'docker' },
      });
      outgoing.on('error', reject);
      outgoing.on('response', (answer) => {
        if (answer.statusCode !== 200) {
          answer.resume();
          reject(new Error(`the engine refused to save ${references.join(', ')} (${answer.statusCode})`));
          return;
        }
        pipeline(answer, out).then(resolve, reject);
      });
      outgoing.end();
    });
  }

  /** @param {import('node:stream').Readable} archive as `save` writes it */
  async load(archive) {
    const { status, text } = await this.call('POST', '/images/load?quiet=1', {
      body: archive,
      timeoutMs: 600_000,
    });
    if (status >= 400) throw new Error(`the engine refused the images: ${messageOf(text)}`);
    const failed = text.split('\n').find((line) => line.includes('"error"'));
    if (failed !== undefined) throw new Error(`the engine did not take the images: ${failed.slice(0, 300)}`);
  }

  /** @param {string} label @returns {Promise<{ kind: 'container' | 'volume', id: string, name: string, value: string }[]>} */
  async labelled(label) {
    const query = `filters=${encodeURIComponent(JSON.stringify({ label: [label] }))}`;
    /** @type {Labelled[]} */
    const containers = await this.json(`/containers/json?all=1&${query}`);
    /** @type {{ Volumes: Labelled[] | null }} */
    const { Volumes } = await this.json(`/volumes?${query}`);
    return [
      ...containers.map((one) => ({
        kind: /** @type {const} */ ('container'),
        id: one.Id,
        name: (one.Names?.[0] ?? one.Id).replace(/^\//, ''),
        value: one.Labels?.[label] ?? '',
      })),
      ...(Volumes ?? []).map((one) => ({
        kind: /** @type {const} */ ('volume'),
        id: one.Name ?? '',
        name: one.Name ?? '',
        value: one.Labels?.[label] ?? '',
      })),
    ];
  }
}

/** @param {string} reference `[host:port/]path:tag` @returns {[string, string]} */
function splitReference(reference) {
  const colon = reference.lastIndexOf(':');
  return [reference.slice(0, colon), reference.slice(colon + 1)];
}

/** @param {string} text */
function messageOf(text) {
  try {
    return JSON.parse(text).message ?? text;
  } catch {
    return text.trim();
  }
}
