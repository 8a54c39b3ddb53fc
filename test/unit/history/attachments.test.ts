import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ATTACHMENT_LIMITS } from '../../../protocol/attachment-names.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Attachments } from '../../../supervisor/history/attachments.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { AttachmentUploads } from '../../../supervisor/store/attachment-uploads.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { png } from '../../fixtures/images.ts';
import {
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  thrownError,
} from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const WEEK_MS = 7 * 86_400_000;

function given() {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  new Sessions(database).insert(sessionRow(0));
  const contents = new Contents(database, new Artifacts(home));
  const uploads = new AttachmentUploads(database);
  const clock = { now: 1_000_000_000_000 };
  const warned: unknown[] = [];
  const log = { warn: (_what: string, fields: unknown) => warned.push(fields) } as never;
  const open = () => new Attachments({ database, uploads, contents, now: () => clock.now, log });
  const attachments = open();
  const send = (bytes: Buffer, upload = 'one') => {
    let answer = attachments.receive(SESSION, {
      upload,
      offset: 0,
      total: bytes.length,
      bytes: bytes.subarray(0, 1000),
    });
    for (let offset = 1000; offset < bytes.length; offset += 1000) {
      expect(answer.content).toBeNull();
      const part = { upload, offset, total: bytes.length, bytes: bytes.subarray(offset, offset + 1000) };
      answer = attachments.receive(SESSION, part);
    }
    return answer;
  };
  const pathOf = (sha256: string) => home.artifact(SESSION, `attachment-${sha256}`);
  const fileOf = (sha256: string) => existsSync(pathOf(sha256));
  return { database, contents, uploads, attachments, open, send, clock, fileOf, pathOf, warned };
}

describe('uploads', () => {
  test('parts become one content, whose kind follows from its bytes', () => {
    const { contents, send } = given();
    const picture = png(40, 40);
    const bytes = Buffer.concat([picture, Buffer.alloc(5000, 'x')]);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    expect(send(bytes)).toEqual({
      kind: 'image',
      content: { sha256, bytes: bytes.length, mediaType: 'image/png' },
    });
    expect(contents.read(SESSION, sha256, 0, 10_000).part.equals(bytes)).toBe(true);
    expect(send(Buffer.from('<svg/>'), 'two')).toMatchObject({
      kind: 'file',
      content: { mediaType: 'text/plain; charset=utf-8' },
    });
    expect(send(Buffer.alloc(0), 'three')).toMatchObject({ kind: 'file', content: { bytes: 0 } });
  });

  test('a repeated part changes nothing, also the last one', () => {
    const { attachments } = given();
    const part = (offset: number, bytes: string) =>
      attachments.receive(SESSION, { upload: 'one', offset, total: 6, bytes: Buffer.from(bytes) });
    part(0, 'abc');
    part(0, 'abc');
    part(3, 'd');
    const done = part(3, 'def');
    expect(done.content?.bytes).toBe(6);
    expect(part(3, 'def')).toEqual(done);
  });

  test('a gap, another size, too many bytes and a supervisor that has forgotten are typed errors', () => {
    const { attachments, open } = given();
    const part =
      (offset: number, bytes: string, total = 6, to = attachments) =>
      () =>
        to.receive(SESSION, { upload: 'one', offset, total, bytes: Buffer.from(bytes) });
    part(0, 'abc')();
    expect(thrownError(part(4, 'ef')).code).toBe('invalid_params');
    expect(thrownError(part(3, 'def')).code).toBe('not_found');
    part(0, 'abc')();
    expect(thrownError(part(3, 'defg')).code).toBe('invalid_params');
    part(0, 'abc')();
    expect(thrownError(part(3, 'de', 5)).code).toBe('invalid_params');
    part(0, 'abc')();
    expect(thrownError(part(3, 'def', 6, open())).code).toBe('not_found');
    expect(thrownError(part(0, 'a', ATTACHMENT_LIMITS.bytes + 1)).code).toBe('file_too_large');
  });

  test('what is under way at once is bounded', () => {
    const { attachments } = given();
    const begin = (nth: number) => () =>
      attachments.receive(SESSION, {
        upload: `u${nth}`,
        offset: 0,
        total: 9 * 2 ** 20,
        bytes: Buffer.alloc(1),
      });
    for (let nth = 0; nth < 7; nth += 1) begin(nth)();
    expect(thrownError(begin(7)).code).toBe('overloaded');
  });

  test('what no prompt names is removed after a week, and everything else stays', () => {
    const { attachments, contents, database, send, clock, fileOf, uploads } = given();
    const shaOf = (text: string, upload: string) => send(Buffer.from(text), upload).content?.sha256 ?? '';
    const [unused, used, printed] = [shaOf('unused', 'a'), shaOf('used', 'b'), shaOf('printed', 'c')];
    attachments.markNamed(SESSION, attachments.resolve(SESSION, [{ content: used, name: 'used' }]));
    // The agent prints the same bytes: an event names them.
    database.transaction(() => contents.append(SESSION, 'out-1', Buffer.from('printed')));
    clock.now += WEEK_MS - 1;
    // Sent again, a draft keeps what it has.
    const again = shaOf('again', 'd');
    clock.now += 2;
    expect(attachments.expire()).toBe(1);
    expect(contents.find(SESSION, unused)).toBeNull();
    expect(fileOf(unused)).toBe(false);
    for (const kept of [used, printed, again]) {
      expect(contents.find(SESSION, kept)).not.toBeNull();
      expect(contents.read(SESSION, kept, 0, 100).part.length).toBeGreaterThan(0);
    }
    expect(uploads.waiting(SESSION).files).toBe(1);
    const gone = thrownError(() => attachments.resolve(SESSION, [{ content: unused, name: '../x.png' }]));
    expect(gone.code).toBe('not_found');
    expect(gone.message).toContain('x.png is gone');
  });
});

test('an old upload that cannot be removed keeps nothing else from being removed or uploaded', () => {
  const { attachments, contents, send, clock, pathOf, uploads, warned } = given();
  const [stuck, other] = ['stuck', 'other'].map(
    (text) => send(Buffer.from(text), text).content?.sha256 ?? '',
  );
  const path = pathOf(stuck ?? '');
  rmSync(path);
  mkdirSync(path);
  clock.now += WEEK_MS + 1;
  expect(attachments.expire()).toBe(1);
  expect(warned).toMatchObject([{ session: SESSION, sha256: stuck }]);
  expect(contents.find(SESSION, other ?? '')).toBeNull();
  expect(send(Buffer.from('new'), 'new').content?.bytes).toBe(3);
  expect(uploads.waiting(SESSION).files).toBe(2);
  rmSync(path, { recursive: true });
  expect(attachments.expire()).toBe(1);
  expect(contents.find(SESSION, stuck ?? '')).toBeNull();
});

describe('what a prompt names', () => {
  test('names differ, and paths are below /workspace', () => {
    const { attachments, send } = given();
    const content = send(png(1, 1)).content?.sha256 ?? '';
    const found = attachments.resolve(SESSION, [
      { content, name: 'a/b/shot.png' },
      { content, name: 'SHOT.png' },
      { content, name: 'shot.png' },
      { path: '/workspace/src/a b.ts' },
    ]);
    expect(found.map((one) => (one.kind === 'link' ? one.path : one.name))).toEqual([
      'shot.png',
      'SHOT-2.png',
      'shot-3.png',
      '/workspace/src/a b.ts',
    ]);
    for (const path of ['/etc/passwd', '/workspace/../etc/passwd', 'src/a.ts', '/workspace/a\0b'])
      expect(() => attachments.resolve(SESSION, [{ path }]), path).toThrow();
  });

  test('all files of a prompt together are bounded', () => {
    const { attachments, contents, database } = given();
    const refs = Array.from({ length: 4 }, (_, nth) => {
      const bytes = Buffer.alloc(9 * 2 ** 20, nth);
      const { sha256 } = database.transaction(() => contents.insert(SESSION, bytes));
      return { content: sha256, name: 'big' };
    });
    expect(attachments.resolve(SESSION, refs.slice(0, 3))).toHaveLength(3);
    expect(thrownError(() => attachments.resolve(SESSION, refs)).code).toBe('file_too_large');
  });
});
