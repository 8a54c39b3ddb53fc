import { UNSUPPORTED_FIELDS } from '../profile.ts';
import { PROFILE_FIELD_DESCRIPTIONS } from './profile-field-descriptions.ts';

const BEGIN = '<!-- fields: written by protocol/schema/publish.ts -->';
const END = '<!-- end of fields -->';

/** The Markdown page with its table of fields replaced by that of this version. Throws if the page has no place for it. */
export function withProfileTable(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the page lacks ${BEGIN} … ${END}`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${profileTable()}\n${page.slice(end)}`;
}

/** One row for each field of `holdfast.yaml`, except those inside a field that deploy refuses as a whole. */
function profileTable(): string {
  const rows = Object.entries(PROFILE_FIELD_DESCRIPTIONS)
    .filter(([field]) => !isInsideRefused(field))
    .map(
      ([field, description]) =>
        `| \`${written(field)}\` | ${cell([description, ...notYet(field)].join(' '))} |`,
    );
  return ['| field | meaning |', '|---|---|', ...rows, ''].join('\n');
}

/** Items of lists and alternatives of a union do not show in the path that a person writes. */
function written(field: string): string {
  return field.replaceAll('.*', '');
}

function notYet(field: string): string[] {
  return UNSUPPORTED_FIELDS.filter((refused) => refused.field === field).map(({ value, next }) =>
    value === undefined
      ? `**Refused by this version**: ${next}.`
      : `**\`${value}\` is refused by this version**: ${next}.`,
  );
}

function isInsideRefused(field: string): boolean {
  return UNSUPPORTED_FIELDS.some(
    (refused) => refused.value === undefined && field.startsWith(`${refused.field}.`),
  );
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll(/\*(?=\.)/g, '\\*');
}
