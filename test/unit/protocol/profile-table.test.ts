import { expect, test } from 'vitest';
import { UNSUPPORTED_FIELDS } from '../../../protocol/profile.ts';
import { PROFILE_FIELD_DESCRIPTIONS } from '../../../protocol/schema/profile-field-descriptions.ts';
import { withProfileTable } from '../../../protocol/schema/profile-table.ts';

const PAGE = `# holdfast.yaml

<!-- fields: written by protocol/schema/publish.ts -->
| an old row |
<!-- end of fields -->
after
`;

test('the page lists each field with its meaning, and keeps the rest of its text', () => {
  const page = withProfileTable(PAGE);
  expect(page).toContain(`| \`limits.pids\` | ${PROFILE_FIELD_DESCRIPTIONS['limits.pids'] ?? ''} |`);
  expect(page).toContain('| `egress.host` |');
  expect(page).not.toContain('an old row');
  expect(page.startsWith('# holdfast.yaml\n')).toBe(true);
  expect(page.endsWith('<!-- end of fields -->\nafter\n')).toBe(true);
  expect(withProfileTable(page)).toBe(page);
});

test('a field that deploy refuses says so, and what to do', () => {
  const rows = withProfileTable(PAGE).split('\n');
  for (const { field, value, next } of UNSUPPORTED_FIELDS) {
    const row = rows.find((one) => one.startsWith(`| \`${field.replaceAll('.*', '')}\` |`));
    expect(row, field).toContain(
      `${value === undefined ? 'Refused' : 'is refused'} by this version**: ${next}.`,
    );
  }
});

test('a page without a place for the table is refused', () => {
  expect(() => withProfileTable('# holdfast.yaml\n')).toThrow('lacks <!-- fields');
});
