import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Directory, errnoOf, isPathError } from './directory.ts';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
/** Writes up to this size are never mixed with another writer's. */
const PIPE_BUF = 4096;

/** `full`: the reader does not read. `nobody`: there is no reader. */
export type SendResult = 'sent' | 'full' | 'nobody';

/** Opened anew for each line: without a reader the system says so, which is how we know that the other end lives. */
function openForWriting(directory: Directory, name: string): number | null {
  return openFifo(directory, name, O_WRONLY);
}

/** A FIFO for reading, without waiting for a writer; null when there is none. */
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

/** Writes what there is room for, without waiting: how many bytes that were. */
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

/** True when somebody has the FIFO open for reading. The reader makes it; we only ever write. */
export function hasReader(directory: Directory, name: string): boolean {
  const fd = openForWriting(directory, name);
  if (fd === null) return false;
  closeSync(fd);
  return true;
}

/** Writes one line in one piece, without waiting. */
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
