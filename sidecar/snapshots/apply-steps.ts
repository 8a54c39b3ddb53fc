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

/** Directories on the stack that stay open. Those above are closed and reopened through `..`. */
const OPEN_LEVELS = 128;
const DOTS = Buffer.from('..');

interface Level {
  fd: number;
  readonly name: Buffer;
  readonly inode: bigint;
  readonly restoreMode: RestoreMode | null;
}

export interface ApplyOptions {
  readonly system: SystemCalls;
  readonly chmods: TemporaryChmods;
  /** The workspace's directory, which must be writable. */
  readonly root: number;
  readonly staging: () => StagingDirectory;
}

/**
 * Applies the steps of a plan. This needs no content, no memory and no decision. If the workspace is not as it was when
 * the plan was made, it fails with `file_unavailable`, and the restore can be repeated.
 */
export function applySteps(steps: readonly RestoreStep[], options: ApplyOptions): void {
  const { system, staging } = options;
  const levels: Level[] = [];
  const currentFd = (): number => levels.at(-1)?.fd ?? options.root;
  try {
    for (const step of steps) {
      switch (step.step) {
        case 'enter':
          levels.push(openLevel(options, currentFd(), step.name, step.inode, levels));
          closeAbove(levels);
          break;
        case 'leave': {
          const level = levels.pop();
          if (level === undefined) throw changedDuringRestore();
          try {
            reopenParent(system, levels.at(-1), level.fd);
            level.restoreMode?.(level.fd);
            if (step.entry !== null) setAttributes(system, level.fd, step.entry);
          } finally {
            closeSync(level.fd);
          }
          break;
        }
        case 'remove':
          if (step.present === 'folder') staging().moveIn(currentFd(), step.name);
          else removeFile(system, currentFd(), step.name);
          break;
        case 'place':
          if (step.present === 'folder') staging().moveIn(currentFd(), step.entry.name);
          if (step.present === 'file' && step.entry.type === 'directory') {
            removeFile(system, currentFd(), step.entry.name);
          }
          system.renameAt(staging().fd, step.staged, currentFd(), step.entry.name);
          if (step.entry.type === 'directory') setAttributesAt(system, currentFd(), step.entry, null);
          break;
        case 'dress':
          setAttributesAt(system, currentFd(), step.entry, step.inode);
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
    for (const { fd, restoreMode } of levels.reverse()) {
      try {
        restoreMode?.(fd);
      } finally {
        if (fd !== -1) closeSync(fd);
      }
    }
  }
}

/** A directory with a temporary chmod stays open: its mode is restored by descriptor. */
function closeAbove(levels: readonly Level[]): void {
  const above = levels.at(-1 - OPEN_LEVELS);
  if (above === undefined || above.fd === -1 || above.restoreMode !== null) return;
  closeSync(above.fd);
  above.fd = -1;
}

/** Reopens a directory through `..` of the one below. */
function reopenParent(system: SystemCalls, level: Level | undefined, below: number): void {
  if (level?.fd !== -1) return;
  const fd = system.openAt(below, system.addressOf(DOTS), NAME_FLAGS);
  system.statFd(fd);
  const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  writeFingerprint(system.stat, fingerprint, 0);
  if (inodeOf(fingerprint) !== level.inode) {
    closeSync(fd);
    throw changedDuringRestore();
  }
  level.fd = fd;
}

function openLevel(
  { system, chmods }: ApplyOptions,
  dirfd: number,
  name: Buffer,
  inode: bigint,
  above: readonly Level[],
): Level {
  const fd = system.openAt(dirfd, system.addressOf(name), NAME_FLAGS);
  try {
    system.statFd(fd);
    const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
    writeFingerprint(system.stat, fingerprint, 0);
    if (inodeOf(fingerprint) !== inode) throw changedDuringRestore();
    const isWritable = (modeOf(fingerprint) & WRITE_AND_ENTER) === WRITE_AND_ENTER;
    const path = [...above.map((level) => level.name), name];
    return { fd, name, inode, restoreMode: isWritable ? null : chmods.grant(fd, path, WRITE_AND_ENTER) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function removeFile(system: SystemCalls, dirfd: number, name: Buffer): void {
  try {
    system.unlinkAt(dirfd, name);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}
