import { describe, expect, test } from 'vitest';
import { formatPath } from '../../../protocol/paths.ts';
import { buildContentRef } from '../../../snapshot-format/content-ref.ts';
import type { FileEntry } from '../../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { acceptedEdits } from '../../../supervisor/reviews/accepted-edits.ts';
import { editTree } from '../../../supervisor/reviews/accepted-tree.ts';
import { collectUnits, type ReviewUnit } from '../../../supervisor/reviews/review-units.ts';
import { wholeState } from '../../../supervisor/reviews/unit-state.ts';
import type { DecisionState } from '../../../supervisor/store/reviews.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import {
  folder,
  type ModelTree,
  plainFile,
  RandomTrees,
  storeTree,
} from '../../fixtures/snapshots/model-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import { soakCount } from '../../setup/run-length.ts';

/** Keeps the objects of two trees and of all that are made of them. */
class Trees extends StoredObjects {
  readonly file = (content: Buffer, model: FileEntry): FileEntry => ({
    ...model,
    size: content.length,
    sparse: false,
    content: buildContentRef(
      content.length === 0 ? [] : [{ index: 0, hash: this.add(OBJECT_KINDS.blob, content) }],
      this.add,
    ),
  });

  async units(before: Hash, after: Hash): Promise<ReviewUnit[]> {
    return await collectUnits(this, { before, after });
  }

  async accepted(before: Hash, after: Hash, units: ReviewUnit[], keys: readonly string[]): Promise<Hash> {
    const decisions = new Map<string, DecisionState>(keys.map((key) => [key, wholeState('accept')]));
    const edits = await acceptedEdits(units, decisions, this);
    return await editTree(before, after, edits, { reader: this, sink: this.add });
  }
}

const model = (entries: Record<string, Parameters<ModelTree['set']>[1]>): ModelTree =>
  new Map([['', folder()], ...Object.entries(entries)]);

describe('the accepted tree', () => {
  test('random trees: all accepted is the target, none the base, in any order the same', async () => {
    const random = new SeededRandom(seedOfRun('accepted-tree'));
    const trees = new RandomTrees(random);
    for (let round = 0; round < soakCount(50, 10_000); round += 1) {
      const before = trees.tree(1 + random.below(40));
      const after = random.below(5) === 0 ? trees.tree(30) : trees.edited(before, random.below(12));
      const objects = new Trees();
      const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
      const units = await objects.units(a, b);
      const keys = units.map(({ key }) => key);
      expect(new Set(keys).size).toBe(keys.length);
      expect(await objects.accepted(a, b, units, [])).toEqual(a);
      const all = await objects.accepted(a, b, units, keys);
      expect((await objects.units(all, b)).map(({ key, kind }) => `${kind} ${key}`)).toEqual([]);

      const some = keys.filter(() => random.below(2) === 0);
      const tree = await objects.accepted(a, b, units, some);
      const shuffled = [...units].sort(() => random.below(3) - 1);
      expect(await objects.accepted(a, b, shuffled, [...some].reverse())).toEqual(tree);
      // What is accepted is as in the target, and what is not still differs from it.
      const left = await objects.units(tree, b);
      const rest = await objects.accepted(
        tree,
        b,
        left,
        left.map(({ key }) => key),
      );
      expect(await objects.units(rest, b)).toEqual([]);
      const undecided = units.filter(({ key }) => !some.includes(key));
      const isFolder = ({ before: old, after: now }: ReviewUnit): boolean =>
        [old, now].every((entry) => entry === null || entry.type === 'directory');
      for (const unit of undecided.filter((one) => !isFolder(one))) {
        const found = left.find(({ key }) => key === unit.key);
        // Of what is left, other files may belong together: what is gone may now be where a file was moved from.
        const isOrigin = left.some(({ origin }) => origin !== null && formatPath(origin.path) === unit.key);
        if (unit.kind !== 'renamed' && !isOrigin) expect(found?.after).toEqual(unit.after);
      }
      const accepted = new Set(some);
      for (const unit of left)
        expect(accepted.has(unit.key) && unit.kind !== 'renamed' && !isFolder(unit)).toBe(false);
    }
  });

  test('a folder that lost a file to a rename keeps it until the rename is accepted', async () => {
    const objects = new Trees();
    const moved = plainFile('moved');
    const a = storeTree(model({ d: folder(), 'd/x': moved, e: folder() }), objects.add);
    const b = storeTree(model({ e: folder(), 'e/x': moved }), objects.add);
    const units = await objects.units(a, b);
    expect(units.map(({ kind, key }) => `${kind} ${key}`)).toEqual(['renamed /workspace/e/x']);
    expect(await objects.units(await objects.accepted(a, b, units, ['/workspace/e/x']), b)).toEqual([]);
  });

  test('a file that became a folder is one unit, with all risks of what is in it', async () => {
    const objects = new Trees();
    const a = storeTree(model({ tool: plainFile('text') }), objects.add);
    const b = storeTree(
      model({ tool: folder(), 'tool/.vscode': folder(), 'tool/.vscode/tasks.json': plainFile('{}') }),
      objects.add,
    );
    const [unit, ...others] = await objects.units(a, b);
    expect(others).toEqual([]);
    expect(unit).toMatchObject({ kind: 'typechange', key: '/workspace/tool', below: 2 });
    expect(unit?.risks).toContain('executes');
  });

  test('the id of a path depends on all that is reviewed of it', async () => {
    const objects = new Trees();
    const base = storeTree(model({}), objects.add);
    const idOf = async (entry: Parameters<ModelTree['set']>[1], more: Record<string, typeof entry> = {}) =>
      (await objects.units(base, storeTree(model({ a: entry, ...more }), objects.add)))[0]?.id;
    const plain = await idOf(plainFile('x'));
    expect(await idOf(plainFile('x', { mtimeNs: 5n }))).toBe(plain);
    const others = [
      await idOf(plainFile('y')),
      await idOf(plainFile('x', { mode: 0o755 })),
      await idOf(plainFile('x', { type: 'symlink' })),
      await idOf(folder()),
    ];
    expect(new Set([plain, ...others]).size).toBe(5);
  });

  test('only times changed: nothing to review', async () => {
    const objects = new Trees();
    const a = storeTree(model({ a: plainFile('x') }), objects.add);
    const b = storeTree(model({ a: plainFile('x', { mtimeNs: 7n }) }), objects.add);
    expect(await objects.units(a, b)).toEqual([]);
  });
});
