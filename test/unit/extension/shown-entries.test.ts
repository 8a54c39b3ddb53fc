import { describe, expect, test } from 'vitest';
import { ShownEntries } from '../../../extension/review/shown-entries.ts';

interface Entry {
  id: string;
  text: string;
}

/** A tree whose texts and entries a test changes, as VS Code has drawn it, with some folders closed. */
class Drawn {
  readonly below = new Map<string, string[]>([
    ['', ['one', 'two']],
    ['one', ['one/a', 'one/b']],
    ['two', ['two/c']],
  ]);
  readonly texts = new Map<string, string>();
  readonly entries = new ShownEntries<Entry>({
    entriesBelow: (parent) =>
      (this.below.get(parent?.id ?? '') ?? []).map((id) => ({ id, text: this.texts.get(id) ?? '' })),
    idOf: ({ id }) => id,
    looksOf: ({ text }) => text,
  });
  readonly has = new Map<string, Entry>();

  constructor(closed: readonly string[] = []) {
    this.draw(undefined, closed);
  }

  draw(parent: Entry | undefined, closed: readonly string[] = []): void {
    for (const entry of this.entries.entriesBelow(parent)) {
      this.has.set(entry.id, entry);
      this.entries.markDrawn(entry);
      if (!closed.includes(entry.id)) this.draw(entry, closed);
    }
  }

  /** The ids of what has to be drawn again. */
  update(): (string | undefined)[] {
    return this.entries.update().map((entry) => entry?.id);
  }
}

describe('what VS Code draws again', () => {
  test('is nothing while everything looks the same', () => {
    const drawn = new Drawn();
    expect(drawn.update()).toEqual([]);
  });

  test('is each entry that looks different, until it is drawn, and no other', () => {
    const drawn = new Drawn();
    drawn.texts.set('one', 'changed').set('one/a', 'changed');
    expect(drawn.update()).toEqual(['one', 'one/a']);
    expect(drawn.update()).toEqual(['one', 'one/a']);
    for (const id of ['one', 'one/a']) drawn.entries.markDrawn(drawn.has.get(id) ?? { id, text: '' });
    expect(drawn.update()).toEqual([]);
  });

  test('is the entry above others that came, went or changed their order', () => {
    const drawn = new Drawn();
    drawn.below.set('one', ['one/b', 'one/a']);
    expect(drawn.update()).toEqual(['one']);
    drawn.below.set('one', ['one/a', 'one/b']).set('', ['one', 'two', 'three']);
    expect(drawn.update()).toEqual([undefined]);
  });

  test('is nothing below an entry that was never opened', () => {
    const drawn = new Drawn(['one']);
    drawn.texts.set('one/a', 'changed');
    drawn.below.set('one', []);
    expect(drawn.update()).toEqual([]);
  });

  test('is the same object as before, with what it is now, so that a click on its way finds it', () => {
    const drawn = new Drawn();
    const before = drawn.has.get('one/a');
    drawn.texts.set('one/a', 'changed');
    drawn.update();
    expect(before?.text).toBe('changed');
    drawn.draw(undefined);
    expect(drawn.has.get('one/a')).toBe(before);
  });

  test('is another object once the old ones are forgotten, which keep what they were', () => {
    const drawn = new Drawn();
    const before = drawn.has.get('one/a');
    drawn.texts.set('one/a', 'changed');
    drawn.entries.forget();
    drawn.draw(undefined);
    expect(before?.text).toBe('');
    expect(drawn.has.get('one/a')).toEqual({ id: 'one/a', text: 'changed' });
    // A late question of VS Code about an old one changes nothing.
    if (before !== undefined) drawn.entries.markDrawn(before);
    expect(drawn.update()).toEqual([]);
  });
});
