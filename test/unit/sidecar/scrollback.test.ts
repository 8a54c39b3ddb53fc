import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Scrollback } from '../../../sidecar/terminals/scrollback.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';

const SEGMENT = 100;

describe('the scrollback of a terminal', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-scrollback-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  function whole(scrollback: Scrollback, from = 0): string {
    let text = '';
    for (let at = from; ;) {
      const { offset, bytes } = scrollback.read(at, 7);
      if (bytes.length === 0) return text;
      text += bytes.toString();
      at = offset + bytes.length;
    }
  }

  test('has the last one to two segments of the output, also for the next sidecar', () => {
    const random = new SeededRandom(3);
    let scrollback = Scrollback.open(join(folder, 'one'), SEGMENT);
    expect(scrollback.hasBegun).toBe(false);
    scrollback.begin();
    let all = '';
    for (let n = 0; n < 400; n += 1) {
      const piece = String.fromCharCode(97 + (n % 26)).repeat(random.below(60));
      all += piece;
      scrollback.append(Buffer.from(piece));
      if (random.below(20) === 0) {
        scrollback.close();
        scrollback = Scrollback.open(join(folder, 'one'), SEGMENT);
        expect(scrollback.hasBegun).toBe(true);
      }
      expect(scrollback.total).toBe(all.length);
      expect(whole(scrollback)).toBe(all.slice(scrollback.start));
      const kept = scrollback.total - scrollback.start;
      expect(kept).toBeLessThanOrEqual(2 * SEGMENT);
      expect(kept).toBeGreaterThanOrEqual(Math.min(all.length, SEGMENT));
      const files = readdirSync(join(folder, 'one'));
      expect(files.length).toBeLessThanOrEqual(2);
      for (const name of files) expect(statSync(join(folder, 'one', name)).size).toBeLessThanOrEqual(SEGMENT);
    }
    expect(whole(scrollback, scrollback.total - 5)).toBe(all.slice(-5));
    expect(scrollback.read(scrollback.total + 50, 10).bytes).toHaveLength(0);
    scrollback.remove();
    expect(readdirSync(folder)).toEqual([]);
  });
});
