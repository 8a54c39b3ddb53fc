import { FileSystemError } from 'vscode';
import type { Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';

/** Converts any failure into the error that VS Code expects of a file system provider, with our message. */
export function asFileSystemError(thrown: unknown): FileSystemError {
  if (thrown instanceof FileSystemError) return thrown;
  const error = HoldfastError.from(thrown, 'The file could not be accessed');
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

/** For writes to the folder above `workspace/`, where VS Code would read files as its own configuration. */
export function outsideWorkspace(): FileSystemError {
  return FileSystemError.NoPermissions('Only files below /workspace can be changed');
}

/** Awaits `work` and converts its failure with `asFileSystemError`. */
export async function withFileSystemErrors<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw asFileSystemError(error);
  }
}
