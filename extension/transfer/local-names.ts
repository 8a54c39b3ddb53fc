import { isConfigurationName } from '../files/configuration-paths.ts';

/** Names that Windows keeps for devices, with any ending. */
const DEVICES = /^(con|prn|aux|nul|com[1-9¹²³]|lpt[1-9¹²³]|conin\$|conout\$)\s*(\.|$)/i;
// eslint-disable-next-line no-control-regex -- these are what Windows refuses
const NOT_ON_WINDOWS = /[<>:"/\\|?*\u0000-\u001f]|[. ]$/;
/** Characters that some file systems leave out when they compare names. */
const IGNORED = /[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/**
 * Why a name from a workspace must not, or cannot, be given to a file of this machine; undefined where it can. Names are compared as
 * the most forgiving file system does.
 */
export function localNameProblem(name: Buffer, platform: NodeJS.Platform): string | undefined {
  const text = name.toString('utf8');
  if (name.length === 0 || text === '.' || text === '..' || name.includes(0x2f) || name.includes(0)) {
    return 'it is no name';
  }
  if (isGitFolder(text)) return 'git on this machine would run programs that it names';
  if (isConfigurationName(text))
    return 'VS Code or an agent on this machine would take it for its own configuration';
  if (platform === 'linux') return undefined;
  if (!Buffer.from(text, 'utf8').equals(name)) return 'its name is not Unicode';
  if (platform === 'win32' && (NOT_ON_WINDOWS.test(text) || DEVICES.test(text))) {
    return 'Windows has no such names';
  }
  return undefined;
}

/** `.git` under any of the names that lead to it somewhere. */
function isGitFolder(name: string): boolean {
  const plain = name
    .normalize('NFKC')
    .replace(IGNORED, '')
    .toLowerCase()
    .replace(/:.*$/, '')
    .replace(/[. ]+$/, '');
  return plain === '.git' || plain === 'git~1';
}

/** Equal for names that are one name on a file system that ignores case or Unicode forms. */
export function foldedName(name: Buffer): string {
  return name.toString('latin1') === name.toString('utf8')
    ? name.toString('latin1').toLowerCase()
    : name.toString('utf8').normalize('NFC').toLowerCase();
}

/**
 * Why a link must not be made that lies `depth` folders below the chosen one. It may go up only at its beginning, where the folders are
 * real ones: behind another link `..` leads somewhere else than it looks.
 */
export function linkProblem(target: string, depth: number, platform: NodeJS.Platform): string | undefined {
  const outside = 'it leads out of the chosen folder';
  if (target === '' || target.startsWith('/')) return outside;
  if (platform === 'win32' && /[\\:]/.test(target)) return outside;
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const down = parts.findIndex((part) => part !== '..');
  const ups = down < 0 ? parts.length : down;
  if (ups > depth || parts.slice(ups).includes('..')) return outside;
  return parts.some((part) => part !== '..' && isGitFolder(part)) ? 'it leads into a git folder' : undefined;
}
