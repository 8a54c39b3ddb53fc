/**
 * Names as git writes and reads them in a patch. Source of the rules: `quote_c_style` and `verify_path` of git, and the
 * section "Generating patch text" of `git help diff-generate-patch`.
 */

const PLAIN = /^[\x21\x23-\x5b\x5d-\x7e]+$/;
const NAMED_ESCAPES: Readonly<Record<number, string>> = {
  0x07: '\\a',
  0x08: '\\b',
  0x09: '\\t',
  0x0a: '\\n',
  0x0b: '\\v',
  0x0c: '\\f',
  0x0d: '\\r',
  0x22: '\\"',
  0x5c: '\\\\',
};

/** `prefix` + path as in a patch header: quoted in C style if it contains anything but plain characters. */
export function quoteName(prefix: string, path: Uint8Array): string {
  const text = prefix + Buffer.from(path).toString('latin1');
  if (PLAIN.test(text)) return text;
  let quoted = '"';
  for (const character of text) {
    const byte = character.charCodeAt(0);
    quoted +=
      NAMED_ESCAPES[byte] ??
      (byte < 0x20 || byte > 0x7e ? `\\${byte.toString(8).padStart(3, '0')}` : character);
  }
  return `${quoted}"`;
}

/** Names that git rejects on any system: NTFS ends a name at a colon and drops trailing dots and spaces. */
const REPOSITORY = /^(?:\.git|git~1)[. ]*(?::|$)/i;
const MODULES_LINK = /^(?:\.gitmodules[. ]*(?::|$)|gitmod~[1-4]|gi7eb)/i;

/**
 * Whether `git apply` would reject the whole patch because of this path: parts of a repository, or a link named
 * .gitmodules.
 */
export function isRefusedByGit(path: Uint8Array, isLink: boolean): boolean {
  return Buffer.from(path)
    .toString('latin1')
    .split(/[/\\]/)
    .some((name) => REPOSITORY.test(name) || (isLink && MODULES_LINK.test(name)));
}
