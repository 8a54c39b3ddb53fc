import type { Change } from '../../../protocol/snapshots.ts';
import type { Hash, ObjectReader } from '../../../snapshot-format/objects.ts';
import { Comparison, type ComparisonOptions } from '../../../supervisor/snapshots/compare/comparison.ts';
import type { Names } from '../../../supervisor/snapshots/compare/differences.ts';
import { byPath, type Item, itemAt, type ModelTree } from './model-tree.ts';

/** What the comparison must say, thought of in the simplest way. Paths are the model's. */
interface Expected {
  readonly path: string;
  readonly kind: Change['kind'];
  readonly oldPath?: string;
}

/** `within`: of this path and what is below it. */
export function naive(before: ModelTree, after: ModelTree, within = ''): Expected[] {
  const inside = (path: string): boolean => within === '' || path === within || path.startsWith(`${within}/`);
  const found: Expected[] = [];
  for (const path of new Set([...before.keys(), ...after.keys()].filter(inside))) {
    const old = before.get(path);
    const now = after.get(path);
    if (old === undefined) found.push({ path, kind: 'added' });
    else if (now === undefined) found.push({ path, kind: 'deleted' });
    else if (old.type !== now.type) found.push({ path, kind: 'typechange' });
    else if (old.type !== 'directory' && (!old.bytes.equals(now.bytes) || old.sparse !== now.sparse)) {
      found.push({ path, kind: 'modified' });
    } else if (attributes(old) !== attributes(now)) found.push({ path, kind: 'mode' });
    else if (old.mtimeNs !== now.mtimeNs) {
      const same = old.type !== 'directory' || children(before, path) === children(after, path);
      if (same) found.push({ path, kind: 'mode' });
    }
  }
  found.sort((one, other) => byPath(one.path, other.path));

  // The rule of renames: same content, same name first, then in order.
  const content = (tree: ModelTree, { path }: Expected): string => {
    const { type, bytes, sparse } = itemAt(tree, path);
    return type === 'file' && bytes.length > 0 ? `${sparse} ${bytes.toString('latin1')}` : '';
  };
  const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
  const come = found.filter((one) => one.kind === 'added' && content(after, one) !== '');
  const gone = found.filter((one) => one.kind === 'deleted' && content(before, one) !== '');
  const origins = new Map<string, string>();
  for (const byName of [true, false]) {
    for (const to of come) {
      const from = gone.find(
        (one) =>
          content(before, one) === content(after, to) &&
          (!byName || nameOf(one.path) === nameOf(to.path)) &&
          ![...origins.values()].includes(one.path),
      );
      if (from !== undefined && !origins.has(to.path)) origins.set(to.path, from.path);
    }
  }
  const left = new Set(origins.values());
  return found
    .filter(({ path, kind }) => kind !== 'deleted' || !left.has(path))
    .map((one) => {
      const oldPath = one.kind === 'added' ? origins.get(one.path) : undefined;
      return oldPath === undefined ? one : { path: one.path, kind: 'renamed', oldPath };
    });
}

function attributes({ mode, xattrs, group }: Item): string {
  const named = xattrs.map(({ name, value }) => `${name.toString('hex')}=${value.toString('hex')}`);
  return JSON.stringify([mode, named, group?.toString('hex') ?? null]);
}

/** All that is below a as one text. */
function children(tree: ModelTree, path: string): string {
  const below = [...tree].filter(([one]) => one !== path && (path === '' || one.startsWith(`${path}/`)));
  return below
    .sort(([one], [other]) => byPath(one, other))
    .map(([one, item]) =>
      [one, item.type, attributes(item), item.mtimeNs, item.sparse, item.bytes.toString('base64')].join(),
    )
    .join('\n');
}

export const namesOf = (path: string): Names =>
  path === '' ? [] : path.split('/').map((name) => Buffer.from(name, 'latin1'));
const pathOf = (names: Names): string => names.map((name) => name.toString('latin1')).join('/');

/** What a comparison says, in the same words. `behind`: only what comes after this path. */
export async function all(comparison: Comparison, behind: Names | null = null): Promise<Expected[]> {
  const found: Expected[] = [];
  for await (const { path, kind, origin } of comparison.differences(behind)) {
    const oldPath = origin === null ? {} : { oldPath: pathOf(origin.path) };
    found.push({ path: pathOf(path), kind, ...oldPath });
  }
  return found;
}

/** Without those that were renamed and edited, of which the naive comparison knows nothing, unless `findEdited`. */
export function compare(
  objects: ObjectReader,
  before: Hash,
  after: Hash,
  path = '',
  options: Pick<ComparisonOptions, 'renameBudgetBytes' | 'findEdited'> = { findEdited: false },
): Promise<Comparison> {
  return Comparison.make(objects, { before, after, path: namesOf(path), ...options });
}
