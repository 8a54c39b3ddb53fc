import { closeSync, constants, type BigIntStats, fstatSync, openSync, readSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';

const { O_DIRECTORY, O_NONBLOCK, O_RDONLY } = constants;

/** A descriptor that is closed at the end of its block. */
export class OpenFile implements Disposable {
  readonly fd: number;

  constructor(fd: number) {
    this.fd = fd;
  }

  stat(): BigIntStats {
    return fstatSync(this.fd, { bigint: true });
  }

  [Symbol.dispose](): void {
    closeSync(this.fd);
  }
}

/** Device and inode, which identify a file. */
export function identityOf({ fd }: { readonly fd: number }): string {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  return `${dev}:${ino}`;
}

/** Opens what an O_PATH descriptor names for reading, if it is a regular file. A FIFO is neither opened nor woken. */
export function openRegular(named: OpenFile, path: string): OpenFile {
  const stat = named.stat();
  if (stat.isDirectory()) throw new HoldfastError('file_is_a_directory', `${path} is a folder`);
  if (!stat.isFile()) {
    throw new HoldfastError('file_not_regular', `${path} is not a regular file`, {
      why: 'only regular files can be read and written',
    });
  }
  // Does not wait even if the agent holds a lease on the file.
  return new OpenFile(openSync(`/proc/self/fd/${named.fd}`, O_RDONLY | O_NONBLOCK));
}

/** Opens the directory that an O_PATH descriptor names, for listing. */
export function openDirectory(named: OpenFile): OpenFile {
  return new OpenFile(openSync(`/proc/self/fd/${named.fd}`, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
}

/** Reads until the buffer is full or the file ends. */
export function readFully(fd: number, buffer: Buffer, position: number): number {
  let filled = 0;
  while (filled < buffer.length) {
    const count = readSync(fd, buffer, filled, buffer.length - filled, position + filled);
    if (count === 0) break;
    filled += count;
  }
  return filled;
}
