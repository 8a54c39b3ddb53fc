/** The file that makes a folder a project. */
export const PROFILE_FILE = 'holdfast.yaml';
