import { z } from 'zod';
import { ProfileNameSchema } from './profile.ts';
import { ArtifactIdSchema, SessionIdSchema, SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { EnvelopeSchema } from './manifest.ts';
import { PATH_LIMITS, parsePath } from './paths.ts';
import { eventType } from './event-type.ts';

export const ARTIFACT_LIMITS = {
  /** Files of one artifact, their bytes together, and the characters of their paths. */
  files: 10_000,
  bytes: 256 * 2 ** 20,
  pathCharacters: 2 * 2 ** 20,
  /** Artifacts of one home, and their bytes together. */
  artifacts: 1000,
  totalBytes: 16 * 2 ** 30,
  /** Files of one page. */
  entries: 500,
  /** Bytes of contents in one answer. */
  answerBytes: 4 * 2 ** 20,
  /** Paths that an answer names of those that were left out. */
  leftOutPaths: 20,
  patterns: 100,
} as const;

/** The only file of an artifact that is a patch. */
export const PATCH_NAME = 'changes.patch';

const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();
const opId = z.string().min(1).max(128).optional();
const path = z.string().max(PATH_LIMITS.characters);
/** `files`: chosen files. `patch`: what changed, as `git apply` takes it, in one file. */
export const ArtifactKindSchema = z.enum(['files', 'patch']);

export const ArtifactFileSchema = z.object({
  /** As protocol/paths.ts writes it, below /workspace. */
  path,
  executable: z.boolean(),
  size: count,
  sha256: hash,
});
export type ArtifactFile = z.infer<typeof ArtifactFileSchema>;

/** A result that a person keeps, whatever becomes of the session and its workspace. */
export const ArtifactSchema = z.object({
  id: ArtifactIdSchema,
  kind: ArtifactKindSchema,
  name: z.string().max(100),
  createdAt: z.string(),
  /** The session that it is from. It may be deleted, and its name used again. */
  session: SessionIdSchema,
  sessionName: z.string(),
  profile: ProfileNameSchema,
  /** The snapshot that it was taken from, which may be deleted. */
  snapshot: SnapshotIdSchema,
  files: count,
  bytes: count,
  /** SHA-256 of the list of its files: see `artifactList`. */
  sha256: hash,
  /** Links, pipes and other paths that were chosen and are no files. */
  leftOut: count,
});
export type Artifact = z.infer<typeof ArtifactSchema>;

/** A person kept a result of the session. */
export const ARTIFACT_EVENTS = {
  'artifact.created': eventType(
    z.object({
      artifactId: ArtifactIdSchema,
      kind: ArtifactKindSchema,
      snapshot: SnapshotIdSchema,
      files: count,
      bytes: count,
      sha256: hash,
    }),
  ),
} as const;

/**
 * The list of files that the SHA-256 of an artifact is of, as `sha256sum` writes it: `HASH  PATH`, one file a line. A path with a
 * line break or a backslash has them escaped, and its line begins with a backslash.
 */
export function artifactList(files: readonly Pick<ArtifactFile, 'path' | 'sha256'>[]): Buffer {
  const lines = files.map(({ path: named, sha256 }) => {
    const bytes = parsePath(named)
      .map((name) => name.toString('latin1'))
      .join('/');
    const isEscaped = /[\\\n\r]/.test(bytes);
    const shown = bytes.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('\r', '\\r');
    return `${isEscaped ? '\\' : ''}${sha256}  ${shown}\n`;
  });
  return Buffer.from(lines.join(''), 'latin1');
}

const artifact = z.object({ artifact: ArtifactIdSchema });

/** client → supervisor. Part of METHODS. */
export const ARTIFACT_METHODS = {
  /**
   * Keeps files of a session as an artifact: those that `paths` chooses, or without it those that changed. With an open review
   * that has something accepted, they are those of the accepted tree, unless `unreviewed` is asked for; otherwise a snapshot of the
   * workspace is created first. Errors: `not_found` if nothing is chosen, `output_limit`, `invalid_state`.
   */
  'artifact/create': {
    params: z.object({
      session: SessionRefSchema,
      kind: ArtifactKindSchema,
      name: z.string().trim().min(1).max(100).optional(),
      paths: z.array(z.string().min(1).max(4096)).max(ARTIFACT_LIMITS.patterns).optional(),
      unreviewed: z.boolean().optional(),
      opId,
    }),
    result: z.object({
      artifact: ArtifactSchema,
      /** The first paths that were chosen and left out. */
      leftOutPaths: z.array(path).max(ARTIFACT_LIMITS.leftOutPaths),
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** The newest first; with `session` those of one session, which may be deleted (by its id). */
  'artifact/list': {
    params: z.object({ session: SessionRefSchema.optional() }),
    result: z.object({ artifacts: z.array(ArtifactSchema).max(ARTIFACT_LIMITS.artifacts) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** With the signed statement whose subject is the list of files. */
  'artifact/show': {
    params: artifact,
    result: z.object({ artifact: ArtifactSchema, envelope: EnvelopeSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Its files in the order of their contents, from the file with this number on. */
  'artifact/files': {
    params: artifact.extend({ from: count.optional() }),
    result: z.object({
      files: z.array(ArtifactFileSchema).max(ARTIFACT_LIMITS.entries),
      next: count.nullable(),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The contents of all its files, one behind the other, from `offset` on, as the payload; empty at the end. */
  'artifact/read': {
    params: artifact.extend({ offset: count }),
    result: z.object({}),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Removes it for good. `removed`: whether it was there. */
  'artifact/remove': {
    params: artifact,
    result: z.object({ removed: z.boolean() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
