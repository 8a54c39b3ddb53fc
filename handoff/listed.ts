import { type RawPath, readable } from '../project/raw-path.ts';

const MAX_LISTED = 20;

/** The first of them, for a sentence. */
export function listed(paths: readonly RawPath[]): string {
  const more = paths.length > MAX_LISTED ? ` and ${paths.length - MAX_LISTED} more` : '';
  return paths.slice(0, MAX_LISTED).map(readable).join(', ') + more;
}
