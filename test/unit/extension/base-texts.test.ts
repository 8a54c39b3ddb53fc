import { expect, test } from 'vitest';
import { BaseTexts } from '../../../extension/files/base-texts.ts';

test('a cached text belongs to one version', () => {
  const texts = new BaseTexts();
  texts.set('a', 'v1', 'one');
  expect(texts.get('a', 'v1')).toBe('one');
  expect(texts.get('a', 'v2')).toBeUndefined();
  texts.set('a', 'v2', 'two');
  expect(texts.get('a', 'v1')).toBeUndefined();
  texts.forget('a');
  expect(texts.get('a', 'v2')).toBeUndefined();
});

test('the latest texts are cached up to a limit, and large ones never', () => {
  const texts = new BaseTexts();
  const text = 'x'.repeat(2 ** 20);
  for (let number = 0; number < 40; number += 1) texts.set(String(number), 'v', text);
  expect(texts.get('7', 'v')).toBeUndefined();
  expect(texts.get('8', 'v')).toBe(text);
  texts.set('large', 'v', `${text}x`);
  expect(texts.get('large', 'v')).toBeUndefined();
  // What was too large has thrown nobody out.
  expect(texts.get('8', 'v')).toBe(text);
});
