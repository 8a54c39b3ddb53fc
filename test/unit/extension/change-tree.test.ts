import { describe, expect, test } from 'vitest';
import { RISKS } from '../../../protocol/risk.ts';
import { REVIEW_STATES } from '../../../protocol/review.ts';
import type { ReviewFile } from '../../../protocol/review.ts';
import {
  MAX_ENTRIES,
  childrenOf,
  describeTally,
  isAllAccepted,
  sectionsOf,
} from '../../../extension/review/change-tree.ts';
import type { Branch, Leaf } from '../../../extension/review/change-tree.ts';
import { describeFlags, inReviewOrder } from '../../../extension/review/review-model.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { reviewFile } from '../../fixtures/reviews/review-file.ts';

const change = (path: string, given: Partial<ReviewFile> = {}): ReviewFile =>
  reviewFile(`/workspace/${path}`, given);

/** All branches and leaves, from top to bottom as an open tree shows them. */
function walk(branches: readonly (Branch | Leaf)[]): (Branch | Leaf)[] {
  return branches.flatMap((one) => (one.kind === 'leaf' ? [one] : [one, ...walk(childrenOf(one))]));
}

function leaves(all: readonly (Branch | Leaf)[]): ReviewFile[] {
  return all.flatMap((one) => (one.kind === 'leaf' ? [one.file] : []));
}

function titles(branches: readonly (Branch | Leaf)[], indent = ''): string[] {
  return branches.flatMap((one) =>
    one.kind === 'leaf'
      ? [`${indent}${one.label}`]
      : [`${indent}${one.label}/`, ...titles(childrenOf(one), `${indent}  `)],
  );
}

describe('the tree of a review', () => {
  test('has a part for each risk, and one entry for folders in each other', () => {
    const files = [
      change('src/a/b/one.ts'),
      change('src/a/b/two.ts'),
      change('src/a.ts'),
      change('web/deep/only.ts'),
      change('run.sh', { risks: ['executes'] }),
      change('dist/out.js', { risks: ['generated'] }),
      change('test/one.test.ts'),
    ];
    expect(titles(sectionsOf(files))).toEqual([
      'Look Closely/',
      '  run.sh',
      'Changes/',
      '  src/',
      '    a.ts',
      '    a/b/',
      '      one.ts',
      '      two.ts',
      '  web/deep/',
      '    only.ts',
      'Generated and Test Files/',
      '  dist/',
      '    out.js',
      '  test/',
      '    one.test.ts',
    ]);
    expect(sectionsOf(files).map(({ isOpen }) => isOpen)).toEqual([true, true, false]);
    expect(sectionsOf([])).toEqual([]);
  });

  test('for any changes it has each of them once, in the order of the review', () => {
    const random = new SeededRandom(seedOfRun('change-tree'));
    for (let round = 0; round < 200; round += 1) {
      const names = ['a', 'b', 'a:b', 'a.b', 'ab', 'A', 'test', 'ü', '\u202e', ' '];
      const paths = new Set<string>();
      const pick = <T>(all: readonly T[]): T | undefined => all[random.below(all.length)];
      for (let count = random.below(40); count > 0; count -= 1) {
        const depth = 1 + random.below(5);
        const path = Array.from({ length: depth }, () => pick(names)).join('/');
        // A path is a folder or a change, and a change that takes others along hides them.
        const isFree = [...paths].every((one) => !one.startsWith(`${path}/`) && !path.startsWith(`${one}/`));
        if (isFree) paths.add(path);
      }
      const files = [...paths].map((path) => {
        const risk = random.below(3) === 0 ? pick(RISKS) : undefined;
        return change(path, { risks: risk === undefined ? [] : [risk] });
      });
      const sections = sectionsOf(files);
      const all = walk(sections);
      expect(leaves(all)).toEqual(inReviewOrder(files));
      expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
      for (const one of all) {
        if (one.kind === 'leaf') continue;
        const children = childrenOf(one);
        expect(leaves(walk(children))).toEqual(one.files);
        const [only] = children;
        if (one.what === 'folder' && children.length === 1) expect(only?.kind).toBe('leaf');
      }
      // The labels from a section down to a change are its path.
      const spelled = (branch: Branch, before: string): string[] =>
        childrenOf(branch).flatMap((one) =>
          one.kind === 'leaf' ? [`${before}${one.label}`] : spelled(one, `${before}${one.label}/`),
        );
      for (const section of sections)
        expect(spelled(section, '/workspace/')).toEqual(section.files.map(({ path }) => path));
    }
  });

  test('a decision moves nothing, so that a checkbox stays where it is', () => {
    const files = ['a', 'b/c', 'b/d', 'dist/x'].map((path) => change(path));
    const before = titles(sectionsOf(files));
    for (const state of REVIEW_STATES)
      expect(titles(sectionsOf(files.map((file, at) => (at % 2 === 0 ? { ...file, state } : file))))).toEqual(
        before,
      );
  });

  test('thousands of changes in one folder are behind entries that begin closed', () => {
    const files = Array.from({ length: 2 * MAX_ENTRIES + 5 }, (_, at) => change(`many/${10_000 + at}`));
    const [section] = sectionsOf(files);
    const [folder] = section === undefined ? [] : childrenOf(section);
    if (folder?.kind !== 'branch') throw new Error('no folder');
    expect(folder.isOpen).toBe(false);
    const entries = childrenOf(folder);
    expect(entries).toHaveLength(MAX_ENTRIES + 1);
    const rest = entries.at(-1);
    expect(rest).toMatchObject({ label: 'and 1,005 more changes', what: 'rest', isOpen: false });
    expect(leaves(walk([folder]))).toEqual(inReviewOrder(files));
  });

  test('folders that an agent nests without end are closed, and open one by one', () => {
    const files = Array.from({ length: 2_000 }, (_, depth) => change(`${'d/'.repeat(depth)}f`));
    let [at]: (Branch | Leaf | undefined)[] = sectionsOf(files.slice(0, 500));
    let open = 0;
    for (; at?.kind === 'branch'; at = childrenOf(at).find(({ kind }) => kind === 'branch')) {
      open += at.isOpen ? 1 : 0;
    }
    expect(open).toBeLessThan(10);
    expect(sectionsOf(files)[0]?.files).toHaveLength(2_000);
  });

  test('a folder is checked when all below it is accepted, and counts', () => {
    const files = [change('a', { state: 'accepted' }), change('b', { state: 'accepted' })];
    expect(isAllAccepted(files)).toBe(true);
    expect(describeTally(files)).toBe('2 of 2 accepted');
    for (const state of ['to-review', 'partial', 'mixed', 'rejected'] as const)
      expect(isAllAccepted([...files, change('c', { state })])).toBe(false);
    expect(describeTally([...files, change('c', { state: 'rejected' })])).toBe('2 of 3 accepted, 1 rejected');
  });
});

describe('what the tree says beside a name', () => {
  test('how much of it is accepted, and its flags', () => {
    expect(describeFlags(change('a'))).toBe('');
    expect(describeFlags(change('a', { state: 'accepted', risks: ['large', 'ci'] }))).toBe(
      'large, runs on a build server',
    );
    expect(describeFlags(change('a', { state: 'partial', hunks: { accepted: 2, all: 5 } }))).toBe(
      '2 of 5 hunks accepted',
    );
    expect(describeFlags(change('a', { state: 'rejected', again: true, below: 3 }))).toBe(
      'rejected · changed since you decided · with 3 below it',
    );
  });

  test('names of an agent are shown as they are, and are no icons or links', () => {
    const oldPath = '/workspace/x/\u202egnp.exe$(warning)[a](command:b)';
    expect(describeFlags(change('a', { kind: 'renamed', oldPath }))).toBe(
      'from \\u{202e}gnp.exe$ (warning)[a] (command:b)',
    );
  });
});
