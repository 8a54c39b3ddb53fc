import { describe, expect, test } from 'vitest';
import { MAX_OPEN_PORTS } from '../../../protocol/open-ports.ts';
import { listOpenPorts, openPortsIn } from '../../../sidecar/network/open-ports.ts';

const HEADER =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
const line = (address: string, port: number, state = '0A', inode = 7): string =>
  `   0: ${address}:${port.toString(16).toUpperCase().padStart(4, '0')} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000  1000        0 ${inode} 1 0000000000000000 100 0 0 10 0`;
const ANY6 = '0'.repeat(32);

describe('the open ports of a sandbox', () => {
  test('are the listening sockets of both tables, with the addresses as people write them', () => {
    const four = [HEADER, line('0100007F', 8080), line('00000000', 3000), line('0100007F', 8080, '01')];
    const six = [
      HEADER,
      line(ANY6, 3000),
      line('00000000000000000000000001000000', 22),
      line('B80D012000000000000000000100A0FE', 443),
    ];
    expect(openPortsIn([four.join('\n'), six.join('\n')], new Set(), true)).toEqual({
      total: 5,
      complete: true,
      listed: [
        { address: '::1', port: 22 },
        { address: '2001:db8::fea0:1', port: 443 },
        { address: '0.0.0.0', port: 3000 },
        { address: '::', port: 3000 },
        { address: '127.0.0.1', port: 8080 },
      ],
    });
  });

  test('are not those of the sidecar itself, recognized by their inodes', () => {
    const table = [line('0100007F', 3128, '0A', 11), line('0100007F', 3129, '0A', 12)].join('\n');
    expect(openPortsIn([table], new Set(['11']), true).listed).toEqual([
      { address: '127.0.0.1', port: 3129 },
    ]);
  });

  test('are counted beyond those that are listed, each once, and no line is believed that is none', () => {
    const many = Array.from({ length: 500 }, (_, n) => line('00000000', 1000 + n));
    const table = [...many, ...many, 'x'.repeat(1000), line('ZZ', 5), '', line('00000000', 0)].join('\n');
    const { total, listed, complete } = openPortsIn([table], new Set(), false);
    expect([total, listed.length, complete]).toEqual([500, MAX_OPEN_PORTS, false]);
  });

  test('can be read on this machine', () => {
    expect(listOpenPorts().complete).toBe(true);
  });
});
