import { closeSync, constants, type BigIntStats, fstatSync, openSync, readSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';

const { O_DIRECTORY, O_NONBLOCK, O_RDONLY } = constants;

/** A descriptor that is closed with its block. */
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

/** Device and inode, by which a file is known again. */
export function identityOf({ fd }: { readonly fd: number }): string {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  return `${dev}:${ino}`;
}

/** Opens for reading what an O_PATH descriptor names, if that is a regular file: no FIFO is ever waited for or woken. */
export function openRegular(named: OpenFile, path: string): OpenFile {
  const stat = named.stat();
  if (stat.isDirectory()) throw new HoldfastError('file_is_a_directory', `${path} is a folder`);
  if (!stat.isFile()) {
    throw new HoldfastError('file_not_regular', `${path} is not a regular file`, {
      why: 'only regular files can be read and written',
    });
  }
  // Without waiting even where the agent holds a lease on it.
  return new OpenFile(openSync(`/proc/self/fd/${named.fd}`, O_RDONLY | O_NONBLOCK));
}

/** Opens for listing what an O_PATH descriptor names. */
export function openDirectory(named: OpenFile): OpenFile {
  return new OpenFile(openSync(`/proc/self/fd/${named.fd}`, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
}

/** As many bytes as there are, up to the buffer's length. */
export function readFully(fd: number, buffer: Buffer, position: number): number {
  let filled = 0;
  while (filled < buffer.length) {
    const count = readSync(fd, buffer, filled, buffer.length - filled, position + filled);
    if (count === 0) break;
    filled += count;
  }
  return filled;
}
