import { foldName } from './folded-name.ts';
import {
  CI_FAMILY,
  MORE_BUILD_FAMILY,
  MORE_BUILD_FILES,
  MORE_CI_FILES,
  MORE_CI_FOLDERS,
  MORE_DEPENDENCY_FILES,
  OBEYED_ENDINGS,
  OBEYED_FAMILY,
  OBEYED_FILES,
  OBEYED_FOLDERS,
} from './obeyed-names.ts';
import {
  BARE_REPOSITORY,
  BINARY_NAME,
  BUILD_ENDINGS,
  BUILD_FAMILY,
  BUILD_FILES,
  CI_FILES,
  CI_FOLDERS,
  DEPENDENCY_FILES,
  DEPENDENCY_NAME,
  EXECUTING_ENDINGS,
  EXECUTING_FAMILY,
  EXECUTING_FILES,
  EXECUTING_FOLDERS,
  GENERATED_ENDINGS,
  GENERATED_FOLDERS,
  GIT_HOOK,
} from './risky-names.ts';

/**
 * What makes a change worth a second look, the most dangerous first. Everything here is judged by names, types and
 * modes, which the agent chose: a rule may only ever flag too much.
 *
 * - `executes`: it can run on the person's machine without being started on purpose: by opening the folder, by a commit
 *   or checkout, by installing dependencies, by a build or a test, or because it is executable.
 * - `outside`: a link that may lead out of the tree.
 * - `ci`: it runs on a build server, often with secrets.
 * - `dependencies`: it decides which foreign code is installed.
 * - `mode`: permission bits changed.
 * - `large`, `binary`: nobody reads it line by line.
 * - `generated`: made by a program; a reader may skip it.
 */
export const RISKS = [
  'executes',
  'outside',
  'ci',
  'dependencies',
  'mode',
  'large',
  'binary',
  'generated',
] as const;
export type Risk = (typeof RISKS)[number];

/** Risks that need a yes of their own before a change leaves the sandbox. */
export const QUARANTINED_RISKS: ReadonlySet<Risk> = new Set<Risk>(['executes', 'outside', 'ci']);

/** Files of at least this many bytes are `large`. */
export const LARGE_FILE_BYTES = 2 ** 20;

/** What is known of one changed path. */
export interface RiskyEntry {
  /** The names below the workspace, as bytes. */
  readonly names: readonly Uint8Array[];
  /** As it will be; of a deleted entry, as it was. */
  readonly type: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket';
  /** Permission bits before and after; null if nothing existed or exists. */
  readonly oldMode: number | null;
  readonly newMode: number | null;
  /** Size after the change; null if it is no file. */
  readonly newBytes: number | null;
  /** The target of a link, as bytes. */
  readonly link?: Uint8Array | null | undefined;
  /** Whether the content is no text; undefined if nobody has looked: then the name decides. */
  readonly isBinary?: boolean | undefined;
}

/** The risks of a change, the most dangerous first. Never throws. */
export function risksOf(entry: RiskyEntry): Risk[] {
  const names = entry.names.map(foldName);
  const own = names.at(-1) ?? '';
  const folders = names.slice(0, -1);
  const { newMode, oldMode, newBytes, type } = entry;
  const found = new Set<Risk>();
  const isOrIsIn = (...sets: readonly ReadonlySet<string>[]): boolean =>
    names.some((name) => sets.some((set) => set.has(name)));
  const endsIn = (endings: readonly string[]): boolean => endings.some((ending) => own.endsWith(ending));

  if (names.some(isObeyed)) found.add('executes');
  if (EXECUTING_FAMILY.test(own) || OBEYED_FAMILY.test(own)) found.add('executes');
  if (endsIn(EXECUTING_ENDINGS) || endsIn(OBEYED_ENDINGS)) found.add('executes');
  const isBuild = BUILD_FILES.has(own) || MORE_BUILD_FILES.has(own) || endsIn(BUILD_ENDINGS);
  if (type !== 'directory' && (isBuild || BUILD_FAMILY.test(own) || MORE_BUILD_FAMILY.test(own)))
    found.add('executes');
  if (names.some((name) => SHORT_NAME.test(name))) found.add('executes');
  if (BARE_REPOSITORY.has(own) || GIT_HOOK.test(own)) found.add('executes');
  // Git reads the configuration of whatever looks like a repository, and this may be made one.
  if (own === 'config' && (folders.at(-1) ?? '').endsWith('git')) found.add('executes');
  if (names.some((name) => name.endsWith('.git'))) found.add('executes');
  const runs = (mode: number | null): boolean => mode !== null && (mode & 0o111) !== 0;
  if (type === 'file' && runs(newMode)) found.add('executes');

  if (type === 'symlink' && mayLeaveTree(entry.link ?? null, folders.length)) found.add('outside');
  // Whatever writes through a harmless name would write git's hooks, or what an editor obeys.
  const target = type === 'symlink' ? targetNames(entry.link ?? null) : [];
  if (target.some((name) => isObeyed(name) || name.endsWith('.git'))) found.add('executes');
  if (isOrIsIn(CI_FOLDERS, MORE_CI_FOLDERS, CI_FILES, MORE_CI_FILES) || CI_FAMILY.test(own)) found.add('ci');
  if (DEPENDENCY_FILES.has(own) || MORE_DEPENDENCY_FILES.has(own) || DEPENDENCY_NAME.test(own))
    found.add('dependencies');
  if (oldMode !== null && newMode !== null && oldMode !== newMode && type !== 'symlink') found.add('mode');
  if ((newBytes ?? 0) >= LARGE_FILE_BYTES) found.add('large');
  const isBinary = entry.isBinary ?? (type === 'file' && BINARY_NAME.test(own));
  if (isBinary || type === 'fifo' || type === 'socket') found.add('binary');
  if (isOrIsIn(GENERATED_FOLDERS) || GENERATED_ENDINGS.some((ending) => own.endsWith(ending)))
    found.add('generated');
  return RISKS.filter((risk) => found.has(risk));
}

/** A name that NTFS may take for any longer one of the folder: `VSCODE~1` for `.vscode`. */
const SHORT_NAME = /^[^~]{1,8}~\d{1,4}(\.[^.]{0,3})?$/;

/** Whether programs obey what is called so, or what is in a folder of this name. */
function isObeyed(name: string): boolean {
  return [EXECUTING_FOLDERS, EXECUTING_FILES, OBEYED_FOLDERS, OBEYED_FILES].some((set) => set.has(name));
}

/** The names in the target of a link, folded. Backslashes separate names on some machines. */
function targetNames(link: Uint8Array | null): string[] {
  if (link === null) return [];
  const target = Buffer.from(link.buffer, link.byteOffset, link.byteLength).toString('latin1');
  return target.split(/[/\\]/).map((name) => foldName(Buffer.from(name, 'latin1')));
}

/**
 * Whether a link may lead out of the tree. Names before a `..` may themselves be links, so a target that goes down and up
 * again counts too. Backslashes separate names on some machines.
 */
function mayLeaveTree(link: Uint8Array | null, depth: number): boolean {
  if (link === null) return true;
  const target = Buffer.from(link.buffer, link.byteOffset, link.byteLength).toString('latin1');
  if (/^([/\\]|[a-zA-Z]:)/.test(target)) return true;
  let ups = 0;
  let hasGoneDown = false;
  for (const name of target.split(/[/\\]/)) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      if (hasGoneDown) return true;
      ups += 1;
    } else hasGoneDown = true;
  }
  return ups > depth;
}

/**
 * The lower, the more dangerous; paths without risks come last. What a program made comes after what has the same risk, so that
 * installed packages do not hide a hook.
 */
export function riskRank(risks: readonly Risk[]): number {
  const [first] = risks;
  if (first === undefined) return RISKS.length;
  return Math.min(...risks.map((risk) => RISKS.indexOf(risk))) + (risks.includes('generated') ? 0.5 : 0);
}
