import { encodeName } from '../../../protocol/paths.ts';

/** A name of a file, as it is on the disk and as it is spelled. */
export interface HardName {
  /** Its bytes. */
  readonly hex: string;
  readonly spelled: string;
  /** Whether it is UTF-8: then the spelling is the text itself, but for the escape character. */
  readonly isText: boolean;
}

const TEXTS = [
  'with space',
  ' leading',
  'trailing  ',
  'a%2fb',
  '%25',
  '#hash',
  'what?a=b',
  'back\\slash',
  '\\\\server\\share',
  'quo\'te"',
  '`tick`',
  '$(echo no)',
  '${path}',
  '-leading-dash',
  '.hidden',
  '..dots',
  '...',
  'dot.',
  'CON',
  'a:b',
  'C:',
  'a*b|c<d>e',
  '~',
  '😀👩‍🔬',
  'caf\u00e9',
  'cafe\u0301',
  'Å-\u00c5-\u212b',
  'שלום',
  'مرحبا.txt',
  '\u202egnp.exe',
  '\u2066isolated\u2069',
  'zero\u200bwidth',
  '\ufeffmark',
  'non\u00a0breaking',
  'line\u2028separator',
  'tab\there',
  'new\nline',
  'return\rhere',
  'bell\u0007',
  'red\u001b[31m',
  'link\u001b]8;;command:x\u0007y',
  'delete\u007f',
  'next\u0085line',
  '\u241b41',
  '[text](command:x)',
  '$(trash)',
  'x'.repeat(255),
  '日'.repeat(85),
];

/** Not UTF-8, or not all of it. */
const BYTES = ['636166e9', 'ff', '61ff62ffff63', 'eda080', 'c080', 'f8888080', 'e298'];

export const HARD_NAMES: readonly HardName[] = [
  ...TEXTS.map((text) => ({ bytes: Buffer.from(text), isText: true })),
  ...BYTES.map((hex) => ({ bytes: Buffer.from(hex, 'hex'), isText: false })),
].map(({ bytes, isText }) => ({ hex: bytes.toString('hex'), spelled: encodeName(bytes), isText }));
