import { UsageError } from './failure.ts';
import { sanitizeLine } from './render/text.ts';

const ID = /^snp-[a-z2-7]{16}$/;

/** The id of a snapshot; a name cannot be one. */
export function parseSnapshotId(text: string): string {
  if (ID.test(text)) return text;
  throw new UsageError(
    `${sanitizeLine(text)} is not the id of a snapshot; \`holdfast snapshot list SESSION\` shows them`,
    'invalid_params',
  );
}
