/** Characters that some file systems ignore in names, so that `.g\u200cit` is `.git` there. */
const IGNORED_CHARACTERS = /\p{Default_Ignorable_Code_Point}/gu;

/**
 * A name as the most forgiving file system might read it: without case, composed, without what HFS+ ignores, without
 * what NTFS drops from the end, and without the name of a stream. Two names that some system takes for one fold to the
 * same text; other names may too.
 */
export function foldName(name: Uint8Array): string {
  const text = Buffer.from(name.buffer, name.byteOffset, name.byteLength).toString('utf8');
  const folded = text
    .replace(IGNORED_CHARACTERS, '')
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .normalize('NFKC')
    .replace(IGNORED_CHARACTERS, '');
  const colon = folded.indexOf(':', 1);
  const stem = colon === -1 ? folded : folded.slice(0, colon);
  let end = stem.length;
  while (end > 0 && (stem[end - 1] === '.' || stem[end - 1] === ' ')) end -= 1;
  return shortNameOf(end === 0 ? stem : stem.slice(0, end));
}

/** The long name that an 8.3 name of NTFS may stand for, if it matters here: `git~1` is `.git`. */
function shortNameOf(name: string): string {
  return /^git~\d{1,3}$/.test(name) ? '.git' : name;
}
