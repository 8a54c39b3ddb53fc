import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { z } from 'zod';
import { type DevcontainerUse, type DockerfileUse, ImageNameSchema } from '../../../protocol/dockerfile.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

/** What a devcontainer.json says of the image, and what else it says, which has no effect. */
export interface Devcontainer {
  /** Relative to the project. */
  readonly path: string;
  readonly image: { readonly reference: string } | { readonly dockerfile: DockerfileUse };
  /** Names of its properties that are ignored. */
  readonly ignored: readonly string[];
}

/** Where tools look for it. */
const USUAL = ['.devcontainer/devcontainer.json', '.devcontainer.json'] as const;
const MAX_BYTES = 256 * 1024;
const MOST_IGNORED = 50;
/** Without a meaning for the container. */
const FOR_PEOPLE: ReadonlySet<string> = new Set(['name', '$schema']);

const text = z.string().min(1).max(4096);
const FileSchema = z.looseObject({
  image: text.optional(),
  build: z
    .looseObject({
      dockerfile: text.optional(),
      context: text.optional(),
      target: text.optional(),
      args: z.record(z.string(), z.string()).optional(),
    })
    .optional(),
  /** As earlier versions wrote it. */
  dockerFile: text.optional(),
  context: text.optional(),
  dockerComposeFile: z.unknown().optional(),
});
type File = z.output<typeof FileSchema>;

/** Reads the devcontainer.json of a deployed project, whose links stay inside. Errors: `profile_invalid`, `not_supported`. */
export async function readDevcontainer(folder: string, use: DevcontainerUse): Promise<Devcontainer> {
  const { path, bytes } = await find(folder, use.path);
  const file = await parse(path, bytes);
  if (file.dockerComposeFile !== undefined) {
    throw new HoldfastError('not_supported', `${path} cannot be used`, {
      why: 'it names services of Docker Compose',
      next: 'name an image or a Dockerfile: `image` or `dockerfile` in holdfast.yaml',
    });
  }
  const dockerfile = file.build?.dockerfile ?? file.dockerFile;
  const ignored = ignoredOf(file);
  if (dockerfile !== undefined) {
    const args = Object.entries(file.build?.args ?? {});
    const plain = args.filter(([name, value]) => /^[A-Za-z_]\w*$/.test(name) && !value.includes('${'));
    const left = args.filter((one) => !plain.includes(one)).map(([name]) => `build.args.${name}`);
    return {
      path,
      image: {
        dockerfile: {
          path: inProject(path, dockerfile),
          context: inProject(path, file.build?.context ?? file.context ?? '.'),
          from: use.from,
          args: Object.fromEntries(plain),
          target: file.build?.target,
        },
      },
      ignored: [...(file.image === undefined ? [] : ['image']), ...ignored, ...left].map(shown),
    };
  }
  if (file.image === undefined)
    throw invalid(
      path,
      'it names neither an image nor a Dockerfile',
      'name one, or set `image` in holdfast.yaml',
    );
  if (!ImageNameSchema.safeParse(file.image).success)
    throw invalid(
      path,
      'its image is no image name; variables are not filled in',
      'write the name of the image',
    );
  return { path, image: { reference: file.image }, ignored: ignored.map(shown) };
}

async function find(folder: string, path: string | undefined): Promise<{ path: string; bytes: Buffer }> {
  for (const one of path === undefined ? USUAL : [path]) {
    const bytes = await read(folder, one);
    if (bytes !== null) return { path: one, bytes };
  }
  throw invalid(
    path ?? USUAL[0],
    'the project has no such file, or an ignore file excludes it',
    'create it, or correct `devcontainer` in holdfast.yaml',
  );
}

async function read(folder: string, path: string): Promise<Buffer | null> {
  const handle = await open(join(folder, path), constants.O_RDONLY | constants.O_NONBLOCK).catch(() => null);
  if (handle === null) return null;
  try {
    const status = await handle.stat();
    if (!status.isFile()) return null;
    if (status.size > MAX_BYTES) throw invalid(path, `it has more than ${MAX_BYTES / 1024} KiB`);
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

async function parse(path: string, bytes: Buffer): Promise<File> {
  const { default: stripJsonComments } = await import('strip-json-comments');
  let value: unknown;
  try {
    const plain = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    value = JSON.parse(stripJsonComments(plain, { trailingCommas: true }));
  } catch (error) {
    throw invalid(path, error instanceof Error ? error.message.slice(0, 200) : 'it is no JSON');
  }
  const parsed = FileSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw invalid(path, z.prettifyError(parsed.error).slice(0, 500));
}

/** A path of the file, which is relative to its own folder. Errors: `profile_invalid` if it leads out of the project. */
function inProject(file: string, path: string): string {
  const found = posix.normalize(posix.join(posix.dirname(file), path)).replace(/\/$/, '');
  const isInside = !posix.isAbsolute(path) && found !== '..' && !found.startsWith('../');
  if (isInside && !/[\0$]/.test(path)) return found === '' ? '.' : found;
  throw invalid(
    file,
    `${JSON.stringify(path)} is not a path inside the project`,
    'move what it needs into the project',
  );
}

function ignoredOf(file: File): string[] {
  const { image: _image, build = {}, dockerFile: _dockerFile, context: _context, ...others } = file;
  const { dockerfile: _file, context: _folder, args: _args, target: _target, ...options } = build;
  return [
    ...Object.keys(others).filter((name) => !FOR_PEOPLE.has(name)),
    ...Object.keys(options).map((name) => `build.${name}`),
  ].slice(0, MOST_IGNORED);
}

function shown(name: string): string {
  return /^[\w.$-]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, 64));
}

function invalid(path: string, why: string, next = 'correct the file and deploy again'): HoldfastError {
  return new HoldfastError('profile_invalid', `${path} cannot be used`, {
    why,
    next,
    details: { file: path },
  });
}
