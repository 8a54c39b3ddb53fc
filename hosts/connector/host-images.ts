import { spawn } from 'node:child_process';
import { addAbortSignal, type Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { readImageTool } from '../far/image-tool.ts';
import { openHostStream } from './connect-host.ts';
import type { ConnectHostOptions } from './connect-host.ts';

const MissingSchema = z.array(z.string().max(300)).max(10);
/** What our images are called: a host cannot make this machine send another image. */
const OURS = [__SIDECAR_IMAGE__, __AGENT_IMAGE__];

/** For a list of images: an engine that takes longer hangs. */
const LIST_MS = 60_000;

export interface HostImagesOptions extends ConnectHostOptions {
  /** Runs the program that knows the engine here, `dist/setup/images.cjs`; its arguments follow. */
  readonly imageTool: readonly string[];
}

export type ImagesResult = 'there' | 'sent' | 'built';

/**
 * Makes our images available on a host: those of the engine here are sent; where there is none, they are built there.
 * Errors: `image_not_found`, with why neither works; `cancelled` by the signal, which ends what was begun on both sides.
 */
export async function ensureHostImages(
  options: HostImagesOptions,
  signal?: AbortSignal,
): Promise<ImagesResult> {
  try {
    return await bringImages({ ...options, signal });
  } catch (error) {
    if (signal?.aborted !== true) throw error;
    throw new HoldfastError('cancelled', `Bringing the images to ${options.host} was cancelled`, {
      cause: error,
    });
  }
}

interface BringingOptions extends HostImagesOptions {
  readonly signal: AbortSignal | undefined;
}

async function bringImages(options: BringingOptions): Promise<ImagesResult> {
  const { host, ui, signal } = options;
  const missing = await missingImages(options);
  if (missing.length === 0) return 'there';
  let reason: unknown;
  try {
    ui.onStage(`Sending the images to ${host} (some minutes on a slow line)`);
    await sendImages(options, missing);
    return 'sent';
  } catch (error) {
    reason = error;
  }
  signal?.throwIfAborted();
  try {
    ui.onStage(`Building the images on ${host} (some minutes)`);
    const stream = await open(options, '/images/build');
    stream.end();
    await readImageTool(stream, `The images cannot be built on ${host}`);
    return 'built';
  } catch (error) {
    const [sending, building] = [HoldfastError.from(reason), HoldfastError.from(error)];
    throw new HoldfastError('image_not_found', `${host} has no images for sandboxes`, {
      why: `they cannot be sent from here (${sending.why ?? sending.message}), nor built there (${building.why ?? building.message})`,
      next: 'run `npm run images` (or Agent: Build Images) on this machine and try again, or name a registry that has them (HOLDFAST_REGISTRY) on the host',
      cause: error,
    });
  }
}

async function missingImages(options: BringingOptions): Promise<readonly string[]> {
  const stream = await open(options, '/images/missing');
  stream.end();
  const text = await readImageTool(stream, `The images of ${options.host} cannot be listed`, LIST_MS);
  const named = MissingSchema.parse(JSON.parse(text));
  return OURS.filter((image) => named.includes(image));
}

async function sendImages(options: BringingOptions, images: readonly string[]): Promise<void> {
  const [program = '', ...args] = options.imageTool;
  const child = spawn(program, [...args, '--save', ...images], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: options.environment,
    signal: options.signal,
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-2000)));
  const exit = new Promise<number | null>((resolve) => {
    child.once('error', () => resolve(-1));
    child.once('close', resolve);
  });
  // Only after the engine has begun: without one there is nothing to send.
  const first = await new Promise<boolean>((resolve) => {
    child.stdout.once('readable', () => resolve(true));
    void exit.then((code) => resolve(code === 0));
  });
  if (!first)
    throw new HoldfastError('engine_unavailable', 'The images cannot be read here', {
      why: said.trim().split('\n').at(-1) ?? 'no engine answers here',
    });
  const stream = await open(options, '/images/load');
  const answer = readImageTool(stream, `The images cannot be loaded on ${options.host}`);
  try {
    // A host that cannot load them says so before all is sent.
    await Promise.race([pipeline(child.stdout, stream, { end: true }), answer]);
    const code = await exit;
    if (code !== 0) throw new HoldfastError('engine_error', 'The images cannot be read here', { why: said });
  } catch (error) {
    child.kill('SIGTERM');
    stream.destroy();
    answer.catch(() => undefined);
    throw error;
  }
  await answer;
}

async function open(
  options: BringingOptions,
  path: '/images/missing' | '/images/load' | '/images/build',
): Promise<Duplex> {
  const { host, signal } = options;
  const stream = await openHostStream(options, path, { start: 'never', signal });
  if (stream === undefined) throw new HoldfastError('not_supported', `${host} cannot do this`);
  if (signal === undefined) return stream;
  return addAbortSignal(signal, stream);
}
