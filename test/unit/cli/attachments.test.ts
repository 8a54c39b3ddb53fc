import { expect, test } from 'vitest';
import { formatAttachment } from '../../../cli/attachments.ts';

test('nothing that another home wrote about an attachment reaches the terminal as it is', () => {
  const hostile = 'x\u001b]52;c;Y3VybA==\u0007\u001b[2J\u009b\u202e\n';
  const content = { sha256: 'a'.repeat(64), bytes: 3, mediaType: hostile };
  for (const shown of [
    formatAttachment({ kind: 'image', name: hostile, content }),
    formatAttachment({ kind: 'file', name: hostile, content }),
    formatAttachment({ kind: 'link', path: hostile }),
  ])
    expect(shown).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});
