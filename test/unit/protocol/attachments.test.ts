import { randomInt } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { ATTACHMENT_LIMITS, attachmentName } from '../../../protocol/attachment-names.ts';
import { AttachmentNameSchema } from '../../../protocol/attachments.ts';
import { BINARY, ContentSchema, JSON_TEXT, TEXT } from '../../../protocol/contents.ts';
import { imageFacts } from '../../../protocol/image-type.ts';
import { gif, jpeg, png, webp } from '../../fixtures/images.ts';
import { SOAK } from '../../setup/run-length.ts';

describe('names of attachments', () => {
  test.each([
    ['photo.png', 'photo.png'],
    ['/home/me/My photo.png', 'My photo.png'],
    ['C:\\Users\\me\\a.txt', 'a.txt'],
    ['../../etc/passwd', 'passwd'],
    ['..', 'attachment'],
    ['/', 'attachment'],
    ['', 'attachment'],
    ['  ', 'attachment'],
    ['a\nb.txt', 'a_b.txt'],
    ['\u202egnp.exe', '_gnp.exe'],
    ['x\u2028y', 'x_y'],
    ['\u001b[31mred', '_[31mred'],
    ['\ud800.txt', '\ufffd.txt'],
    ['-rf', '-rf'],
    ['日本語 😀.png', '日本語 😀.png'],
  ])('%j becomes %j', (given, name) => {
    expect(attachmentName(given)).toBe(name);
    expect(AttachmentNameSchema.safeParse(name).success).toBe(true);
  });

  test('a long name is cut between characters, and any name makes a valid one', () => {
    const name = attachmentName(`${'😀'.repeat(500)}.png`);
    expect(Buffer.byteLength(name)).toBeLessThanOrEqual(ATTACHMENT_LIMITS.nameBytes);
    expect(name.isWellFormed()).toBe(true);
    // Other characters in each run, of every script; the soak run has all of them.
    for (let unit = SOAK ? 0 : randomInt(8); unit < 0x1_00_00; unit += SOAK || unit < 0x300 ? 1 : 8) {
      const made = attachmentName(`${String.fromCharCode(unit)}x `);
      if (!AttachmentNameSchema.safeParse(made).success) expect(made, unit.toString(16)).toBe('');
    }
    expect(AttachmentNameSchema.safeParse('a/b').success).toBe(false);
  });
});

test('the type of a content is printable, and those that are stored stay valid', () => {
  const isValid = (mediaType: string) =>
    ContentSchema.safeParse({ sha256: 'a'.repeat(64), bytes: 1, mediaType }).success;
  const pictures = [png(1, 1), jpeg(1, 1), gif(1, 1), webp(1, 1)].map(
    (one) => imageFacts(one)?.mediaType ?? '',
  );
  expect([TEXT, JSON_TEXT, BINARY, ...pictures].filter((one) => !isValid(one))).toEqual([]);
  const hostile = ['x\u001b]52;c;Y3VybA==\u0007', 'a\nb', 'a\n', '\u009b2J', '\u202etxt', 'x\u007f'];
  expect(hostile.filter(isValid)).toEqual([]);
});

describe('what is a picture', () => {
  test.each([
    ['image/png', png(3, 5)],
    ['image/gif', gif(3, 5)],
    ['image/jpeg', jpeg(3, 5)],
    ['image/webp', webp(3, 5)],
  ])('%s by its bytes', (mediaType, bytes) => {
    expect(imageFacts(bytes)).toEqual({ mediaType, width: 3, height: 5 });
    for (let length = 0; length < 10; length += 1) expect(imageFacts(bytes.subarray(0, length))).toBeNull();
  });

  test('a document, a damaged header or a picture too large to draw is none', () => {
    for (const bytes of [
      Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'),
      Buffer.from('<!doctype html>'),
      Buffer.from('%PDF-1.7'),
      Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0]),
      png(0, 5),
      png(16_385, 1),
      png(10_000, 10_000),
      png(2 ** 32 - 1, 2 ** 32 - 1),
    ])
      expect(imageFacts(bytes)).toBeNull();
  });
});
