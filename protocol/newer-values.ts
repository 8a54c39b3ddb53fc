import { z } from 'zod';

/** How a value that only a newer version knows is read, by the schema that does not accept it. */
const READ_AS = z.registry<{ readonly readAs: (value: unknown) => unknown }>();

/** Values of a newer version that the schema does not accept are read as what `readAs` makes of them. */
export function readNewerAs<S extends z.ZodType>(schema: S, readAs: (value: unknown) => unknown): S {
  READ_AS.add(schema, { readAs });
  return schema;
}

/** Lists whose entries stand alone. */
const LISTINGS = z.registry<{ readonly leavesOut: true }>();

/**
 * Entries of a newer version that the list does not accept are left out of it. Only for listings: never where an entry is
 * named by its index, or where a person or a program acts on all of them.
 */
export function leaveOutNewer<S extends z.ZodArray>(schema: S): S {
  LISTINGS.add(schema, { leavesOut: true });
  return schema;
}

/**
 * Parses what a newer version sent. What the schema does not know is read as `readNewerAs` says, else the entry of a
 * listing that has it is left out (`leaveOutNewer`). Fails where neither is possible.
 */
export function parseNewer<S extends z.ZodType>(
  schema: S,
  value: unknown,
): z.ZodSafeParseResult<z.output<S>> {
  const parsed = schema.safeParse(value);
  return parsed.success ? parsed : schema.safeParse(toKnown(schema, value));
}

/** The value with what the schema accepts in the place of what it does not know. It may still not accept it. */
function toKnown(schema: z.core.$ZodType, value: unknown): unknown {
  if (accepts(schema, value)) return value;
  const known = partsToKnown(schema, value);
  if (accepts(schema, known)) return known;
  const entry = READ_AS.get(schema as z.ZodType);
  return entry === undefined ? known : entry.readAs(value);
}

function partsToKnown(schema: z.core.$ZodType, value: unknown): unknown {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable || schema instanceof z.ZodDefault)
    return toKnown(schema.unwrap(), value);
  if (schema instanceof z.ZodIntersection) return toKnown(schema.def.right, toKnown(schema.def.left, value));
  if (schema instanceof z.ZodArray) {
    if (!Array.isArray(value)) return value;
    const { element } = schema;
    const known = value.map((one: unknown) => toKnown(element, one));
    return LISTINGS.has(schema) ? known.filter((one) => accepts(element, one)) : known;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (schema instanceof z.ZodObject)
    return Object.fromEntries(
      Object.entries(value).map(([name, one]: [string, unknown]) => {
        const shapes = schema.shape as Readonly<Record<string, z.core.$ZodType>>;
        // The other side chooses the name: `constructor` is no member of the schema.
        const shape = Object.hasOwn(shapes, name) ? shapes[name] : undefined;
        return [name, shape === undefined ? one : toKnown(shape, one)];
      }),
    );
  if (schema instanceof z.ZodDiscriminatedUnion) {
    const { discriminator, options } = schema.def;
    const kind: unknown = (value as Readonly<Record<string, unknown>>)[discriminator];
    const option = options.find((one) => one._zod.propValues?.[discriminator]?.has(kind as string) === true);
    return option === undefined ? value : toKnown(option, value);
  }
  return value;
}

function accepts(schema: z.core.$ZodType, value: unknown): boolean {
  return z.safeParse(schema, value).success;
}
