// Writes the JSON Schemas in docs/ from the zod schemas, and the table of fields in docs/profile.md. With --check it only
// reports whether they are up to date.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { withProfileTable } from './profile-table.ts';
import { manifestJsonSchema, profileJsonSchema, protocolJsonSchema } from './json-schemas.ts';

const ROOT = join(import.meta.dirname, '../..');
const PROFILE_PAGE = join(ROOT, 'docs/profile.md');
const DOCUMENTS = [
  { file: join(ROOT, 'docs/holdfast.schema.json'), make: () => JSON.stringify(profileJsonSchema()) },
  { file: join(ROOT, 'docs/protocol.schema.json'), make: () => JSON.stringify(protocolJsonSchema()) },
  { file: join(ROOT, 'docs/manifest.schema.json'), make: () => JSON.stringify(manifestJsonSchema()) },
  { file: PROFILE_PAGE, make: () => withProfileTable(readFileSync(PROFILE_PAGE, 'utf8')) },
];

const check = process.argv.includes('--check');
for (const { file, make } of DOCUMENTS) {
  const made = make();
  // Prettier leaves the Markdown of this project alone.
  const text = file.endsWith('.md')
    ? made
    : await format(made, { ...(await resolveConfig(file)), filepath: file });
  if (existsSync(file) && readFileSync(file, 'utf8') === text) continue;
  const name = relative(ROOT, file);
  if (check) {
    console.error(`${name} is out of date: run \`node protocol/schema/publish.ts\``);
    process.exitCode = 1;
  } else {
    writeFileSync(file, text);
    console.log(`wrote ${name}`);
  }
}
