import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { toSingleLine } from '../base/single-line.ts';
import type { SecretSearch } from './secret-search.ts';

/** Files that are named; what more there is, is not looked for. */
const MOST_FINDINGS = 10;
const PATH_CHARACTERS = 200;

export interface SecretFinding {
  readonly secret: string;
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
  const found: SecretFinding[] = [];
  const report = (name: string, secrets: readonly string[]): void => {
    const path = toSingleLine(`/${search.redact(name)}`, PATH_CHARACTERS);
    for (const secret of secrets)
      if (!found.some((one) => one.secret === secret && one.path === path)) found.push({ secret, path });
  };
  const entries = extract();
  const enough = new AbortController();
  const reading = pipeline(tar, entries, { signal: AbortSignal.any([signal, enough.signal]) });
  reading.catch(() => undefined);
  try {
    for await (const entry of entries) {
      const { name, linkname } = entry.header;
      report(name, search.begin().read(Buffer.from([name, linkname].join('\n'))));
      const reader = search.begin();
      let isClean = true;
      for await (const chunk of entry as AsyncIterable<Buffer>) {
        if (!isClean) continue;
        const secrets = reader.read(chunk);
        if (secrets.length === 0) continue;
        isClean = false;
        report(name, secrets);
      }
      if (found.length >= MOST_FINDINGS) break;
    }
    if (found.length < MOST_FINDINGS) await reading;
  } finally {
    enough.abort();
    tar.destroy();
  }
  signal.throwIfAborted();
  return found.slice(0, MOST_FINDINGS);
}

/** The error of a setup that left a secret in its image. */
export function leftSecretsError(profile: string, findings: readonly SecretFinding[]): HoldfastError {
  const where = findings.map(({ secret, path }) => `${secret} in ${path}`).join(', ');
  return new HoldfastError('setup_failed', `The setup of ${profile} left a secret in its image`, {
    why: `found ${where}${findings.length === MOST_FINDINGS ? ' and perhaps elsewhere' : ''}`,
    next: 'nothing of it was kept; install that package without the secret, or put it into the image by yourself, without the file',
    details: { findings: findings.map((finding) => ({ ...finding })) },
  });
}
