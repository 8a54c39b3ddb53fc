import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Extract, extract } from 'tar-stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { toSingleLine } from '../base/single-line.ts';
import type { SecretSearch } from './secret-search.ts';

/** One entry of a file system. */
export interface SetupFile {
  /** Absolute. */
  readonly path: string;
  /** Its name, the target of a link, and whatever else is not content. */
  readonly metadata: Buffer;
  readonly content: AsyncIterable<Buffer>;
  /** Equal contents have equal ones. Those of which one was found clean are not read again. */
  readonly contentId?: string;
}

/** Files that are named; what more there is, is not looked for. */
const MOST_FINDINGS = 10;
const PATH_CHARACTERS = 200;
/** Contents that are remembered as clean; more are read again. */
const MOST_CLEAN = 400_000;

export interface SecretFinding {
  readonly secret: string;
  /** As it is; not for people. */
  readonly file: string;
  /** Absolute, on one line. A secret in it is replaced by its name. */
  readonly path: string;
}

/**
 * Where secrets are in a file system, given as a tar stream: in contents, names and targets of links. Compressed files are not
 * unpacked. Ends the stream early when it has found enough.
 */
export async function scanFiles(
  tar: Readable,
  search: SecretSearch,
  signal: AbortSignal,
): Promise<SecretFinding[]> {
  const entries = extract();
  const enough = new AbortController();
  const reading = pipeline(tar, entries, { signal: AbortSignal.any([signal, enough.signal]) });
  reading.catch(() => undefined);
  try {
    const found = await scanEntries(entriesOf(entries), search);
    if (found.length < MOST_FINDINGS) await reading;
    signal.throwIfAborted();
    return found;
  } finally {
    enough.abort();
    tar.destroy();
  }
}

/** As `scanFiles`, for entries whose contents are read in order. Stops reading when it has found enough. */
export async function scanEntries(
  entries: AsyncIterable<SetupFile>,
  search: SecretSearch,
): Promise<SecretFinding[]> {
  const found: SecretFinding[] = [];
  const report = (name: string, secrets: readonly string[]): void => {
    const path = toSingleLine(search.redact(name), PATH_CHARACTERS);
    for (const secret of secrets)
      if (!found.some((one) => one.secret === secret && one.path === path))
        found.push({ secret, path, file: name });
  };
  const clean = new Set<string>();
  for await (const { path, metadata, content, contentId } of entries) {
    report(path, search.begin().read(metadata));
    if (found.length >= MOST_FINDINGS) break;
    if (contentId !== undefined && clean.has(contentId)) continue;
    const reader = search.begin();
    let isClean = true;
    for await (const chunk of content) {
      if (!isClean) continue;
      const secrets = reader.read(chunk);
      if (secrets.length === 0) continue;
      isClean = false;
      report(path, secrets);
    }
    if (isClean && contentId !== undefined && clean.size < MOST_CLEAN) clean.add(contentId);
    if (found.length >= MOST_FINDINGS) break;
  }
  return found.slice(0, MOST_FINDINGS);
}

async function* entriesOf(entries: Extract): AsyncGenerator<SetupFile> {
  for await (const entry of entries) {
    const { name, linkname } = entry.header;
    yield {
      path: `/${name}`,
      metadata: Buffer.from([name, linkname].join('\n')),
      content: entry as AsyncIterable<Buffer>,
    };
  }
}

/** The error of a setup that left a secret in its image. */
export function leftSecretsError(
  profile: string,
  findings: readonly SecretFinding[],
  place = 'its image',
  wasRemoving = false,
): HoldfastError {
  const where = findings.map(({ secret, path }) => `${secret} in ${path}`).join(', ');
  return new HoldfastError('setup_failed', `The setup of ${profile} left a secret in ${place}`, {
    why: `found ${where}${findings.length === MOST_FINDINGS ? ' and perhaps elsewhere' : ''}`,
    next: wasRemoving
      ? 'nothing of it was kept; removing these files did not help: write nothing with a secret in it'
      : 'nothing of it was kept; to keep the rest without these files, repeat the command with --remove-secret-files; or install that package without the secret',
    details: { findings: findings.map(({ secret, path }) => ({ secret, path })) },
  });
}
