import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Directory, errnoOf, isPathError } from './directory.ts';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
/** Writes up to this size are atomic. */
const PIPE_BUF = 4096;

/** `full`: the reader does not read. `nobody`: no reader has opened the FIFO. */
export type SendResult = 'sent' | 'full' | 'nobody';

/** Opened for each line: the system then reports whether a reader still exists. */
function openForWriting(directory: Directory, name: string): number | null {
  return openFifo(directory, name, O_WRONLY);
}

/** Opens a FIFO for reading without waiting for a writer. Null if there is none. */
export function openForReading(directory: Directory, name: string): number | null {
  return openFifo(directory, name, O_RDONLY);
}

function openFifo(directory: Directory, name: string, direction: number): number | null {
  let fd: number;
  try {
    fd = openSync(directory.path(name), direction | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
  if (fstatSync(fd).isFIFO()) return fd;
  closeSync(fd);
  return null;
}

/** Writes what fits without blocking. Returns the number of bytes. */
export function writeAvailable(directory: Directory, name: string, bytes: Uint8Array): number | 'nobody' {
  const fd = openForWriting(directory, name);
  if (fd === null) return 'nobody';
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    switch (errnoOf(error)) {
      case 'EAGAIN':
        return 0;
      case 'EPIPE':
        return 'nobody';
      case undefined:
      default:
        throw error;
    }
  } finally {
    closeSync(fd);
  }
}

/** True if a process has the FIFO open for reading. The reader creates it; the sidecar only writes. */
export function hasReader(directory: Directory, name: string): boolean {
  const fd = openForWriting(directory, name);
  if (fd === null) return false;
  closeSync(fd);
  return true;
}

/** Writes one line atomically and without blocking. */
export function sendLine(directory: Directory, name: string, line: string): SendResult {
  const bytes = Buffer.from(`${line}\n`);
  if (bytes.length > PIPE_BUF) throw new HoldfastError('internal', 'A request line is too long');
  const fd = openForWriting(directory, name);
  if (fd === null) return 'nobody';
  try {
    writeSync(fd, bytes);
    return 'sent';
  } catch (error) {
    switch (errnoOf(error)) {
      case 'EAGAIN':
        return 'full';
      case 'EPIPE':
        return 'nobody';
      case undefined:
      default:
        throw error;
    }
  } finally {
    closeSync(fd);
  }
}
