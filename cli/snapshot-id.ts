import { UsageError } from './failure.ts';
import { visible } from './render/text.ts';

const ID = /^snp-[a-z2-7]{16}$/;

/** The id of a snapshot; a name cannot be one. */
export function snapshotId(text: string): string {
  if (ID.test(text)) return text;
  throw new UsageError(
    `${visible(text)} is not the id of a snapshot; \`holdfast snapshot list SESSION\` shows them`,
    'invalid_params',
  );
}
