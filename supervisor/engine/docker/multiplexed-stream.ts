import { PassThrough } from 'node:stream';
import type { Readable } from 'node:stream';
import type { Socket } from 'node:net';

const HEADER = 8;
const STDERR = 2;

/**
 * Splits the engine's multiplexed stream of a process without a terminal into stdout and stderr: frames of an 8-byte
 * header (stream, length) and the payload. Applies backpressure, so memory stays flat. Both outputs end with the
 * connection.
 */
export function demultiplex(socket: Socket): { stdout: Readable; stderr: Readable } {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  let header = Buffer.alloc(0);
  let target = stdout;
  let left = 0;
  let blocked = 0;

  const write = (stream: PassThrough, bytes: Buffer): void => {
    if (stream.destroyed || stream.write(bytes)) return;
    blocked += 1;
    socket.pause();
    const resume = (): void => {
      stream.off('drain', resume);
      stream.off('close', resume);
      blocked -= 1;
      if (blocked === 0) socket.resume();
    };
    stream.on('drain', resume);
    stream.on('close', resume);
  };

  socket.on('data', (chunk: Buffer) => {
    let rest = chunk;
    while (rest.length > 0) {
      if (left === 0) {
        const more = Math.min(HEADER - header.length, rest.length);
        header = Buffer.concat([header, rest.subarray(0, more)]);
        rest = rest.subarray(more);
        if (header.length < HEADER) return;
        target = header.readUInt8(0) === STDERR ? stderr : stdout;
        left = header.readUInt32BE(4);
        header = Buffer.alloc(0);
        continue;
      }
      const part = rest.subarray(0, left);
      left -= part.length;
      rest = rest.subarray(part.length);
      write(target, part);
    }
  });
  const finish = (): void => {
    stdout.end();
    stderr.end();
  };
  socket.on('end', finish);
  socket.on('close', finish);
  return { stdout, stderr };
}

/** Reads a stream to its end and returns its first `limit` bytes as text. */
export async function readText(stream: Readable, limit: number): Promise<string> {
  const head: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    const bytes = chunk as Buffer;
    if (size < limit) head.push(bytes.subarray(0, limit - size));
    size += bytes.length;
  }
  return Buffer.concat(head).toString('utf8');
}
