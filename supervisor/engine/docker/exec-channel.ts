import { Duplex } from 'node:stream';
import type { Readable } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import { demultiplex, readText } from './multiplexed-stream.ts';
import type { RawExec } from './exec.ts';

const SHOWN_BYTES = 2048;

/**
 * The stdin and stdout of a process in a container as one stream. End of output ends the reading side; ending the
 * writing side is end of input; destroying closes the connection. If the process fails without output, its stderr is
 * the error.
 */
export class ExecChannel extends Duplex {
  readonly #exec: RawExec;
  readonly #output: Readable;

  constructor(exec: RawExec) {
    super({ allowHalfOpen: true });
    this.#exec = exec;
    const { stdout, stderr } = demultiplex(exec.socket);
    this.#output = stdout;
    let bytes = 0;
    stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (!this.push(chunk)) stdout.pause();
    });
    const complaint = readText(stderr, SHOWN_BYTES);
    stdout.on('end', () => {
      complaint.then(
        (text) => {
          if (bytes === 0 && text !== '') this.destroy(broken(text.trim()));
          else this.push(null);
        },
        (error: unknown) => this.destroy(broken(String(error))),
      );
    });
    exec.socket.on('error', (error) => this.destroy(broken(error.message)));
    exec.socket.on('close', () => {
      if (!this.writableEnded) this.end();
    });
  }

  override _read(): void {
    this.#output.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#exec.socket.write(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#exec.socket.writable) this.#exec.socket.end(() => done());
    else done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#exec.socket.destroy();
    done(error);
  }
}

function broken(why: string): HoldfastError {
  return new HoldfastError('sandbox_lost', 'The channel to the sidecar broke', {
    why,
    next: 'try again; a dead sidecar is replaced',
  });
}
