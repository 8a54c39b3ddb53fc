import { closeSync, constants } from 'node:fs';
import { errnoOf } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';
import { changedDuringRestore, setAttributes, setAttributesAt } from './attributes.ts';
import { FINGERPRINT_WORDS, inodeOf, modeOf, writeFingerprint } from './fingerprint.ts';
import type { RestoreMode, TemporaryChmods } from './temporary-chmods.ts';
import type { RestoreStep } from './restore-steps.ts';
import type { StagingDirectory } from './staging-directory.ts';
import type { SystemCalls } from './system-calls.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const NAME_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW;
const WRITE_AND_ENTER = 0o300;

/** Folders on the way down that stay open; those above are closed and found again through `..`. */
const OPEN_LEVELS = 128;
const DOTS = Buffer.from('..');

interface Level {
  fd: number;
  readonly name: Buffer;
  readonly inode: bigint;
  readonly giveBack: RestoreMode | null;
}

export interface ApplyOptions {
  readonly system: SystemCalls;
  readonly lent: TemporaryChmods;
  /** The workspace's folder, which we may write to. */
  readonly root: number;
  readonly staging: () => StagingDirectory;
}

/**
 * Takes the steps of a plan. Nothing that it does needs content, memory or a decision; where something is not as it was when
 * the plan was made it ends with `file_unavailable`, and the restore can be repeated.
 */
export function applySteps(steps: readonly RestoreStep[], options: ApplyOptions): void {
  const { system, staging } = options;
  const levels: Level[] = [];
  const here = (): number => levels.at(-1)?.fd ?? options.root;
  try {
    for (const step of steps) {
      switch (step.step) {
        case 'enter':
          levels.push(openLevel(options, here(), step.name, step.inode, levels));
          closeAbove(levels);
          break;
        case 'leave': {
          const level = levels.pop();
          if (level === undefined) throw changedDuringRestore();
          try {
            openAgain(system, levels.at(-1), level.fd);
            level.giveBack?.(level.fd);
            if (step.entry !== null) setAttributes(system, level.fd, step.entry);
          } finally {
            closeSync(level.fd);
          }
          break;
        }
        case 'remove':
          if (step.present === 'folder') staging().moveIn(here(), step.name);
          else removeFile(system, here(), step.name);
          break;
        case 'place':
          if (step.present === 'folder') staging().moveIn(here(), step.entry.name);
          if (step.present === 'file' && step.entry.type === 'directory') {
            removeFile(system, here(), step.entry.name);
          }
          system.renameAt(staging().fd, step.staged, here(), step.entry.name);
          if (step.entry.type === 'directory') setAttributesAt(system, here(), step.entry, null);
          break;
        case 'dress':
          setAttributesAt(system, here(), step.entry, step.inode);
          break;
      }
    }
  } catch (error) {
    switch (errnoOf(error)) {
      case 'ENOENT':
      case 'ENOTDIR':
      case 'ELOOP':
      case 'EISDIR':
      case 'ENOTEMPTY':
      case 'EEXIST':
        throw changedDuringRestore();
      case undefined:
      default:
        throw error;
    }
  } finally {
    for (const { fd, giveBack } of levels.reverse()) {
      try {
        giveBack?.(fd);
      } finally {
        if (fd !== -1) closeSync(fd);
      }
    }
  }
}

/** One whose mode is lent stays open: it is given back by its descriptor. */
function closeAbove(levels: readonly Level[]): void {
  const above = levels.at(-1 - OPEN_LEVELS);
  if (above === undefined || above.fd === -1 || above.giveBack !== null) return;
  closeSync(above.fd);
  above.fd = -1;
}

/** From the directory in it. */
function openAgain(system: SystemCalls, level: Level | undefined, below: number): void {
  if (level?.fd !== -1) return;
  const fd = system.openAt(below, system.addressOf(DOTS), NAME_FLAGS);
  system.statFd(fd);
  const facts = new Uint32Array(FINGERPRINT_WORDS);
  writeFingerprint(system.stat, facts, 0);
  if (inodeOf(facts) !== level.inode) {
    closeSync(fd);
    throw changedDuringRestore();
  }
  level.fd = fd;
}

function openLevel(
  { system, lent }: ApplyOptions,
  directory: number,
  name: Buffer,
  inode: bigint,
  above: readonly Level[],
): Level {
  const fd = system.openAt(directory, system.addressOf(name), NAME_FLAGS);
  try {
    system.statFd(fd);
    const facts = new Uint32Array(FINGERPRINT_WORDS);
    writeFingerprint(system.stat, facts, 0);
    if (inodeOf(facts) !== inode) throw changedDuringRestore();
    const isWritable = (modeOf(facts) & WRITE_AND_ENTER) === WRITE_AND_ENTER;
    const path = [...above.map((level) => level.name), name];
    return { fd, name, inode, giveBack: isWritable ? null : lent.grant(fd, path, WRITE_AND_ENTER) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function removeFile(system: SystemCalls, directory: number, name: Buffer): void {
  try {
    system.unlinkAt(directory, name);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}
