import { FilePermission, FileType } from 'vscode';
import type { FileStat } from 'vscode';
import type { FileStat as SessionStat, FileType as SessionType } from '../../protocol/files.ts';

const TYPES = {
  file: FileType.File,
  directory: FileType.Directory,
  symlink: FileType.SymbolicLink,
  fifo: FileType.Unknown,
  socket: FileType.Unknown,
  device: FileType.Unknown,
} as const satisfies Record<SessionType, FileType>;

/** The folder above `workspace/`, which never changes. */
export const ROOT_STAT: FileStat = {
  type: FileType.Directory,
  ctime: 0,
  mtime: 0,
  size: 0,
  permissions: FilePermission.Readonly,
};

/** Of an entry of a listing; `linkType` is what a link leads to. */
export function entryType(type: SessionType, linkType: SessionType | null): FileType {
  if (type !== 'symlink') return TYPES[type];
  return linkTo(linkType === null ? FileType.Unknown : TYPES[linkType]);
}

/** Of what a path leads to; a link that leads nowhere is told of as itself. */
export function statType({ type }: SessionStat, isLink: boolean): FileType {
  const target = type === 'symlink' ? FileType.Unknown : TYPES[type];
  return isLink ? linkTo(target) : target;
}

function linkTo(type: FileType): FileType {
  return FileType.SymbolicLink | type;
}
