import { describe, expect, test } from 'vitest';
import { OutputDecoder, escapeInput } from '../../../sidecar/terminals/telnet.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';

/** What telnetd makes of input: the same as busybox 1.35 does in one read. */
function asTelnetd(input: Buffer): Buffer {
  const out: number[] = [];
  for (let at = 0; at < input.length; at += 1) {
    const byte = input[at] ?? 0;
    if (byte === 0xff) at += 1;
    out.push(byte);
    if (byte === 0x0d && (input[at + 1] === 0x0a || input[at + 1] === 0)) at += 1;
  }
  return Buffer.from(out);
}

describe('telnet between the sidecar and a terminal', () => {
  test('any input arrives unchanged', () => {
    const random = new SeededRandom(7);
    const odd = [0xff, 0x0d, 0x0a, 0x00, 0x41, 0x1e, 0xf0];
    for (let n = 0; n < 2000; n += 1) {
      const input = Buffer.from(
        Array.from({ length: random.below(12) }, () => odd[random.below(odd.length)] ?? 0),
      );
      expect(asTelnetd(escapeInput(input)).toString('hex')).toBe(input.toString('hex'));
    }
  });

  test('output after the start marker is unescaped, however it is split into chunks', () => {
    const sent = Buffer.from('fffd01fffd1ffffb01fffb030d0d0a1e41ffff421effffff' + 'ff43', 'hex');
    for (const size of [1, 2, 3, 5, sent.length]) {
      const decoder = new OutputDecoder(false);
      const parts: Buffer[] = [];
      for (let at = 0; at < sent.length; at += size)
        parts.push(Buffer.from(decoder.decode(sent.subarray(at, at + size))));
      expect(Buffer.concat(parts).toString('hex')).toBe('41ff421effff43');
      expect(decoder.hasBegun).toBe(true);
    }
  });

  test('the next sidecar continues without a start marker', () => {
    expect(new OutputDecoder(true).decode(Buffer.from('on')).toString()).toBe('on');
  });
});
