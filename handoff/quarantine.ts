import { QUARANTINED_RISKS, type Risk, risksOf } from '../protocol/risk.ts';
import { toBytes, type RawPath } from '../project/raw-path.ts';
import type { Change } from './changes.ts';

/**
 * Why a change needs a yes of its own: it could run on the person's machine, or it leads out of the tree. Empty for none.
 * `link`: the text of a link. `committed`: git's mode of the file as the person has it; the executable bit counts if it has none.
 */
export function quarantineReasons(
  path: RawPath,
  { before, after }: Change,
  link: Buffer | null,
  committed: string | null,
): Risk[] {
  const side = after ?? before;
  const isExecutable = after?.executable === true && committed !== '100755';
  const risks = risksOf({
    names: path.split('/').map(toBytes),
    type: side?.type === 'symlink' ? 'symlink' : 'file',
    oldMode: committed === null ? null : committed === '100755' ? 0o755 : 0o644,
    newMode: after === null ? null : isExecutable ? 0o755 : 0o644,
    newBytes: after?.size ?? null,
    // A link that goes away leads nowhere.
    link: after === null ? Buffer.alloc(1, '.') : link,
  });
  return risks.filter((risk) => QUARANTINED_RISKS.has(risk));
}
