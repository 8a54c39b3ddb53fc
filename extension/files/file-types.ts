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

/** The stat of the folder above `workspace/`, which never changes. */
export const ROOT_STAT: FileStat = {
  type: FileType.Directory,
  ctime: 0,
  mtime: 0,
  size: 0,
  permissions: FilePermission.Readonly,
};

/** The type of a directory entry. `linkType`: the type of a link's target; null where the target is missing. */
export function entryType(type: SessionType, linkType: SessionType | null): FileType {
  if (type !== 'symlink') return TYPES[type];
  return linkTo(linkType === null ? FileType.Unknown : TYPES[linkType]);
}

/** The type of a stat that follows links. A dangling link has its own stat. */
export function statType({ type }: SessionStat, isLink: boolean): FileType {
  const target = type === 'symlink' ? FileType.Unknown : TYPES[type];
  return isLink ? linkTo(target) : target;
}

function linkTo(type: FileType): FileType {
  return FileType.SymbolicLink | type;
}
