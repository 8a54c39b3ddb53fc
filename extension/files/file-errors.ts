import { FileSystemError } from 'vscode';
import type { Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';

/** Any failure as VS Code wants it from a provider of files: the kind it acts on, and the sentence that a person reads. */
export function asFileSystemError(thrown: unknown): FileSystemError {
  if (thrown instanceof FileSystemError) return thrown;
  const error = HoldfastError.from(thrown, 'The file could not be reached');
  const { sentence } = error;
  switch (error.code) {
    case 'file_not_found':
    case 'not_found':
      return FileSystemError.FileNotFound(sentence);
    case 'file_exists':
    case 'directory_not_empty':
      return FileSystemError.FileExists(sentence);
    case 'file_not_a_directory':
      return FileSystemError.FileNotADirectory(sentence);
    case 'file_is_a_directory':
      return FileSystemError.FileIsADirectory(sentence);
    case 'permission_denied':
    case 'read_only':
      return FileSystemError.NoPermissions(sentence);
    default:
      return FileSystemError.Unavailable(sentence);
  }
}

export function fileNotFound(uri: Uri): FileSystemError {
  return FileSystemError.FileNotFound(uri);
}

/** The folder above `workspace/` is no place for files: what lay there would be read as configuration of the editor. */
export function outsideWorkspace(): FileSystemError {
  return FileSystemError.NoPermissions('Only what is below /workspace can be changed');
}

/** What work gives; its failure as VS Code wants it. */
export async function withFileSystemErrors<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw asFileSystemError(error);
  }
}
