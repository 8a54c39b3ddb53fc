import { UsageError } from './failure.ts';
import { sanitizeLine } from './render/text.ts';

const ID = /^snp-[a-z2-7]{16}$/;

/** Checks that a word of the command line is a snapshot id. */
export function parseSnapshotId(text: string): string {
  if (ID.test(text)) return text;
  throw new UsageError(
    `${sanitizeLine(text)} is not a snapshot id; see \`holdfast snapshot list SESSION\``,
    'invalid_params',
  );
}

/** Checks the value `snapshot:ID` of an option `--from`. */
export function parseSnapshotSource(from: string): `snapshot:${string}` {
  if (!from.startsWith('snapshot:'))
    throw new UsageError(`--from cannot be ${sanitizeLine(from)}; use snapshot:ID`);
  return `snapshot:${parseSnapshotId(from.slice('snapshot:'.length))}`;
}
