import { z } from 'zod';
import * as entities from '../entities.ts';
import { ManifestStatementSchema } from '../manifest.ts';
import { ErrorDataSchema } from '../error-data.ts';
import { ERROR_CODES } from '../errors.ts';
import {
  CLIENT_NOTIFICATIONS,
  ClientInfoSchema,
  METHODS,
  NOTIFICATIONS,
  PROTOCOL_VERSIONS,
} from '../methods.ts';
import type { MethodShape } from '../methods.ts';
import { AgentSchema, PresetAgentSchema, ProfileSchema, UNSUPPORTED_FIELDS } from '../profile.ts';
import { FRAME_LIMITS } from '../wire/limits.ts';
import { PROFILE_FIELD_DESCRIPTIONS } from './profile-field-descriptions.ts';

const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** A JSON Schema under construction. */
type Schema = Record<string, unknown>;

/** The JSON Schema of `holdfast.yaml`. Throws if a field has no description, or a description no field. */
export function profileJsonSchema(): Schema {
  const written = ProfileSchema.extend({ agent: z.union([...AgentSchema.options, PresetAgentSchema]) });
  const schema: Schema = { ...z.toJSONSchema(written, { io: 'input' }) };
  const unused = new Set(Object.keys(PROFILE_FIELD_DESCRIPTIONS));
  describe(schema, '', unused);
  if (unused.size > 0) throw new Error(`these described fields do not exist: ${[...unused].join(', ')}`);
  return {
    $schema: DIALECT,
    title: 'holdfast.yaml',
    description: 'A profile of Holdfast: which agent, in which image, with what workspace and limits.',
    ...schema,
  };
}

function describe(schema: Schema, path: string, unused: Set<string>): void {
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  const properties = isSchema(schema['properties']) ? schema['properties'] : {};
  for (const [name, property] of Object.entries(properties)) {
    if (!isSchema(property)) continue;
    const description = PROFILE_FIELD_DESCRIPTIONS[at(name)];
    if (description === undefined)
      throw new Error(
        `the field ${at(name)} has no description in protocol/schema/profile-field-descriptions.ts`,
      );
    unused.delete(at(name));
    properties[name] = { description: [description, ...refusals(at(name))].join(' '), ...property };
    describe(property, at(name), unused);
  }
  const forms = schema['oneOf'] ?? schema['anyOf'];
  for (const form of Array.isArray(forms) ? forms : []) {
    if (isSchema(form)) describe(form, at('*'), unused);
  }
  if (isSchema(schema['items'])) describe(schema['items'], at('*'), unused);
}

/** Says if deploy refuses a field, a field that contains it, or one of its values. */
function refusals(path: string): string[] {
  const concerned = UNSUPPORTED_FIELDS.filter(
    ({ field, value }) => field === path || (value === undefined && path.startsWith(`${field}.`)),
  );
  return concerned.map(({ value }) =>
    value === undefined
      ? 'Not supported by this version: deploy refuses it.'
      : `${value} is not supported by this version: deploy refuses it.`,
  );
}

/**
 * The JSON Schema of one line of the protocol in either direction, as it is on the wire. The definitions
 * `<method>.params` and `<method>.result` describe the methods.
 */
export function protocolJsonSchema(): Schema {
  const names = namedSchemas();
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of names) registry.add(schema, { id });
  const methods: Readonly<Record<string, MethodShape>> = METHODS;
  const notifications: Readonly<Record<string, { params: z.ZodType; bytes?: 'params' }>> = {
    ...NOTIFICATIONS,
    ...CLIENT_NOTIFICATIONS,
  };
  const parts: Schema = {};
  for (const [name, { params, result }] of Object.entries(methods)) {
    parts[`${name}.params`] = convert(params, registry);
    parts[`${name}.result`] = convert(result, registry);
  }
  for (const [name, { params }] of Object.entries(notifications))
    parts[`${name}.params`] = convert(params, registry);
  const named: Schema = {};
  for (const [id, schema] of names) named[id] = convert(schema, registry, id);
  return {
    $schema: DIALECT,
    title: 'Holdfast protocol',
    description: `Protocol ${PROTOCOL_VERSIONS.join(', ')}: one message per line, followed by \`bytes\` raw bytes. See protocol.md.`,
    oneOf: [
      ...Object.entries(methods).map(([name, shape]) => requestOf(name, shape.bytes === 'params')),
      ...Object.entries(notifications).map(([name, shape]) => notificationOf(name, shape.bytes === 'params')),
      { $ref: '#/$defs/Answer' },
      { $ref: '#/$defs/Failure' },
    ],
    $defs: {
      RequestId: { anyOf: [{ type: 'string', maxLength: 100 }, { type: 'integer' }] },
      Bytes: {
        description: 'Number of raw bytes that follow this line.',
        type: 'integer',
        minimum: 0,
        maximum: FRAME_LIMITS.payloadBytes,
      },
      Json: { description: 'Any JSON value.' },
      Answer: {
        type: 'object',
        properties: {
          jsonrpc: { const: '2.0' },
          id: { $ref: '#/$defs/RequestId' },
          result: { description: 'See `<method>.result` of the called method.', type: 'object' },
          bytes: { $ref: '#/$defs/Bytes' },
        },
        required: ['jsonrpc', 'id', 'result'],
        not: { required: ['error'] },
      },
      Failure: {
        type: 'object',
        properties: {
          jsonrpc: { const: '2.0' },
          id: {
            description: 'Null: an error of the connection, which then ends.',
            anyOf: [{ $ref: '#/$defs/RequestId' }, { type: 'null' }],
          },
          error: {
            type: 'object',
            properties: {
              code: { type: 'integer', enum: Object.values(ERROR_CODES) },
              message: { type: 'string' },
              data: { $ref: '#/$defs/ErrorData' },
            },
            required: ['code', 'message', 'data'],
          },
        },
        required: ['jsonrpc', 'id', 'error'],
      },
      ...named,
      ...parts,
    },
  };
}

/** The JSON Schema of what a manifest's envelope has as its payload. */
export function manifestJsonSchema(): Schema {
  const { $schema: _, ...schema } = z.toJSONSchema(ManifestStatementSchema);
  return {
    $schema: DIALECT,
    title: 'Manifest of a Holdfast session',
    description: 'An in-toto Statement v1: the payload of a signed envelope (DSSE). See manifest.md.',
    ...schema,
  };
}

/** The schemas that get a named definition: those that entities.ts exports as `<Name>Schema`, and two more. */
function namedSchemas(): Map<string, z.ZodType> {
  const found = new Map<string, z.ZodType>([
    ['ClientInfo', ClientInfoSchema],
    ['ErrorData', ErrorDataSchema],
  ]);
  for (const [name, schema] of Object.entries(entities)) {
    if (name.endsWith('Schema') && schema instanceof z.ZodType)
      found.set(name.slice(0, -'Schema'.length), schema);
  }
  return found;
}

function requestOf(method: string, bytes: boolean): Schema {
  return envelope(method, bytes, { id: { $ref: '#/$defs/RequestId' } }, [
    'jsonrpc',
    'id',
    'method',
    'params',
  ]);
}

function notificationOf(method: string, bytes: boolean): Schema {
  return { ...envelope(method, bytes, {}, ['jsonrpc', 'method', 'params']), not: { required: ['id'] } };
}

function envelope(method: string, bytes: boolean, more: Schema, required: readonly string[]): Schema {
  return {
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      ...more,
      method: { const: method },
      params: { $ref: `#/$defs/${method.replaceAll('/', '~1')}.params` },
      ...(bytes ? { bytes: { $ref: '#/$defs/Bytes' } } : {}),
    },
    required: [...required],
  };
}

/** Converts a schema, with references to the named definitions. `own`: the name of the definition to convert. */
function convert(schema: z.ZodType, registry: z.core.$ZodRegistry<{ id: string }>, own?: string): Schema {
  const { $schema: _, $defs, ...rest } = z.toJSONSchema(schema, { io: 'input', metadata: registry });
  for (const [name, part] of Object.entries($defs ?? {})) {
    // zod generates a name for a recursive schema without one. Only `z.json()` may be such a schema.
    if (name.startsWith('__') && part.anyOf?.length !== 6)
      throw new Error(`${name} in ${own ?? 'a part'} needs a name`);
  }
  const converted = rewrite(own === undefined ? rest : ($defs?.[own] ?? rest));
  if (!isSchema(converted)) throw new Error(`no schema came of ${own ?? 'a part'}`);
  delete converted['id'];
  return converted;
}

function rewrite(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rewrite);
  if (!isSchema(value)) return value;
  const { $ref } = value;
  if (typeof $ref === 'string' && $ref.startsWith('#/$defs/__')) return { $ref: '#/$defs/Json' };
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, rewrite(inner)]));
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
