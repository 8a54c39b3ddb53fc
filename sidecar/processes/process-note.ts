import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../files/directory.ts';
import { spaceError } from '../files/full-disk.ts';

const NoteSchema = z.object({
  /** ms since 1970. */
  createdAt: z.number(),
  /** Offset behind the last byte of input that was accepted. */
  accepted: z.number().int().nonnegative(),
  /** Offsets and sizes of input that the program may not have yet, in order. */
  waiting: z.array(z.object({ at: z.number().int().nonnegative(), bytes: z.number().int().positive() })),
  /** The input ends behind the accepted bytes. */
  isClosed: z.boolean(),
  ended: z.object({ exitCode: z.number().int().nullable(), damage: z.string().nullable() }).nullable(),
});
type Note = z.infer<typeof NoteSchema>;

const NAME = 'note.json';

/**
 * What the sidecar knows about a process and the agent must not change: `note.json` in a folder of the control
 * directory. It is replaced as a whole, so a killed sidecar leaves the old or the new one.
 */
export class ProcessNote {
  readonly #folder: string;
  #note: Note;

  private constructor(folder: string, note: Note) {
    this.#folder = folder;
    this.#note = note;
  }

  /** Null if there is none, or none that can be read: a machine that lost its power may leave an empty file. */
  static find(folder: string): ProcessNote | null {
    try {
      return new ProcessNote(folder, NoteSchema.parse(JSON.parse(readFileSync(join(folder, NAME), 'utf8'))));
    } catch (error) {
      if (errnoOf(error) === 'ENOENT' || error instanceof SyntaxError || error instanceof z.ZodError)
        return null;
      throw error;
    }
  }

  static create(folder: string, createdAt: number): ProcessNote {
    // A sidecar that was killed here left no note, and output of nothing.
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { mode: 0o700 });
    const note = new ProcessNote(folder, {
      createdAt,
      accepted: 0,
      waiting: [],
      isClosed: false,
      ended: null,
    });
    note.change({});
    return note;
  }

  get value(): Readonly<Note> {
    return this.#note;
  }

  /** Errors: `no_space`; then the note is as it was. */
  change(part: Partial<Note>): void {
    const next = { ...this.#note, ...part };
    const path = join(this.#folder, NAME);
    try {
      writeFileSync(`${path}.new`, JSON.stringify(next), { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } catch (error) {
      throw spaceError(error, 'What is known of a process could not be noted');
    }
    this.#note = next;
  }
}
