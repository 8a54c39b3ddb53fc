// Writes the JSON Schemas in docs/ from the zod schemas. With --check it only reports whether they are up to date.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { manifestJsonSchema, profileJsonSchema, protocolJsonSchema } from './json-schemas.ts';

const ROOT = join(import.meta.dirname, '../..');
const DOCUMENTS = [
  { file: join(ROOT, 'docs/holdfast.schema.json'), make: profileJsonSchema },
  { file: join(ROOT, 'docs/protocol.schema.json'), make: protocolJsonSchema },
  { file: join(ROOT, 'docs/manifest.schema.json'), make: manifestJsonSchema },
];

const check = process.argv.includes('--check');
for (const { file, make } of DOCUMENTS) {
  const text = await format(JSON.stringify(make()), { ...(await resolveConfig(file)), filepath: file });
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
