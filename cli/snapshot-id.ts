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
