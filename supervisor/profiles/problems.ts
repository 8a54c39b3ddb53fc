import {
  type Document,
  isMap,
  isNode,
  isPair,
  isScalar,
  LineCounter,
  parseDocument,
  type ParsedNode,
} from 'yaml';
import { z } from 'zod';
import { ProfileSchema } from '../../protocol/profile.ts';

/** Lines and columns count from 1. */
export interface ProfileProblem {
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

export interface ParsedYaml {
  readonly value: unknown;
  readonly document: Document.Parsed;
  readonly lines: LineCounter;
}

type Path = readonly PropertyKey[];
/** A schema issue of zod, whose type differs by kind. */
type Issue = z.core.$ZodIssue;

const MOST_ALIASES = 100;
const tooDeep: ProfileProblem = { line: 1, column: 1, message: 'the file is nested too deeply' };

/** Parses YAML to a value with positions, or to its syntax problems. */
export function parseYaml(text: string): ParsedYaml | { readonly problems: readonly ProfileProblem[] } {
  const lines = new LineCounter();
  try {
    const document = parseDocument(text, {
      lineCounter: lines,
      prettyErrors: false,
      stringKeys: true,
      merge: false,
    });
    const faults = [...document.errors, ...document.warnings];
    if (faults.some(({ message }) => message.includes('call stack'))) return { problems: [tooDeep] };
    if (faults.length > 0) {
      return {
        problems: faults.map(({ code, pos, message }) => ({
          ...position(lines, pos[0]),
          message:
            code === 'MULTIPLE_DOCS'
              ? 'a profile is one document: "---" starts a second one'
              : oneLine(message),
        })),
      };
    }
    return { value: document.toJS({ maxAliasCount: MOST_ALIASES }), document, lines };
  } catch (error) {
    // Deep nesting that exhausts the stack, and aliases that expand too far.
    if (error instanceof RangeError) return { problems: [tooDeep] };
    const message = error instanceof Error ? error.message : String(error);
    return { problems: [{ line: 1, column: 1, message: `the file is not valid YAML: ${oneLine(message)}` }] };
  }
}

/** The schema's findings, each with its position and a message for a person. */
export function findProblems(yaml: ParsedYaml, issues: readonly Issue[]): ProfileProblem[] {
  return issues
    .flatMap((issue) => problemsOf(yaml, issue))
    .sort((a, b) => a.line - b.line || a.column - b.column);
}

function problemsOf(yaml: ParsedYaml, issue: Issue): ProfileProblem[] {
  const { path } = issue;
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      ...place(yaml, path, key),
      message: unknownKey(yaml.value, path, key),
    }));
  }
  const name = path.map(String).join('.');
  const value = valueAt(yaml.value, path);
  if (value === undefined) {
    return [{ ...place(yaml, path), message: `"${name}" is missing` }];
  }
  if (path.length === 0 && value === null) return [{ line: 1, column: 1, message: 'the file is empty' }];
  const where = path.length === 0 ? 'the file' : `"${name}"`;
  return [{ ...place(yaml, path), message: `${where} is ${shown(value)}${expected(issue)}` }];
}

function expected(issue: Issue): string {
  if (issue.code === 'invalid_union') {
    const options = optionsAt(issue.path);
    return options.length === 0
      ? `: ${issue.message}`
      : `, expected ${options.map((one) => `"${one}"`).join(', ')}`;
  }
  if (issue.code === 'invalid_type') return `, expected ${KINDS[issue.expected] ?? issue.expected}`;
  return `: ${oneLine(issue.message)}`;
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'text (put quotes around it)',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a mapping',
  record: 'a mapping',
  array: 'a list',
};

function shown(value: unknown): string {
  if (value === null) return 'empty';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a mapping';
  // An address may have a password in it.
  const text = JSON.stringify(value).replace(/:\/\/[^/"\s]*@/g, '://…@');
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

/** The position of the node at `path` (or of its key `key`), else of the nearest existing parent. */
function place({ document, lines }: ParsedYaml, path: Path, key?: string): { line: number; column: number } {
  for (let length = path.length; length >= 0; length -= 1) {
    const node = length === 0 ? document.contents : document.getIn(path.slice(0, length), true);
    if (!isNode(node)) continue;
    if (key !== undefined && length === path.length && isMap(node)) {
      const pair = node.items.find((one) => isPair(one) && isScalar(one.key) && one.key.value === key);
      if (pair !== undefined && isNode(pair.key)) return position(lines, startOf(pair.key));
    }
    return position(lines, startOf(node));
  }
  return { line: 1, column: 1 };
}

function startOf(node: { range?: ParsedNode['range'] | null | undefined }): number {
  return node.range?.[0] ?? 0;
}

function position(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  // An empty file has no lines.
  return { line: Math.max(1, line), column: Math.max(1, col) };
}

function valueAt(value: unknown, path: Path): unknown {
  let at = value;
  for (const key of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
    at = Object.getOwnPropertyDescriptor(at, key)?.value;
  }
  return at;
}

function unknownKey(root: unknown, path: Path, key: string): string {
  const names = keysAt(root, path);
  const close = closestName(key, names);
  const where = path.length === 0 ? '' : ` in "${path.map(String).join('.')}"`;
  if (close !== undefined) return `unknown key "${key}"${where}; did you mean "${close}"?`;
  return `unknown key "${key}"${where}; known keys: ${names.join(', ')}`;
}

const ShapeSchema = z.object({
  properties: z.record(z.string(), z.json()).optional(),
  additionalProperties: z.json().optional(),
  items: z.json().optional(),
  anyOf: z.array(z.json()).optional(),
  oneOf: z.array(z.json()).optional(),
  const: z.string().optional(),
  enum: z.array(z.json()).optional(),
});

/** The published schema's nodes at `path`: several if the schema has alternatives. */
function shapesAt(path: Path): z.infer<typeof ShapeSchema>[] {
  let level: unknown[] = [z.toJSONSchema(ProfileSchema, { io: 'input', unrepresentable: 'any' })];
  const open = (nodes: unknown[]): z.infer<typeof ShapeSchema>[] =>
    nodes.flatMap((node) => {
      const parsed = ShapeSchema.safeParse(node);
      if (!parsed.success) return [];
      const others = [...(parsed.data.anyOf ?? []), ...(parsed.data.oneOf ?? [])];
      return others.length === 0 ? [parsed.data] : open(others);
    });
  for (const key of path) {
    level = open(level).flatMap((node) =>
      typeof key === 'number' ? [node.items] : [node.properties?.[String(key)] ?? node.additionalProperties],
    );
  }
  return open(level);
}

/** Valid keys at `path`. Of alternatives discriminated by `protocol`, only the chosen one counts. */
function keysAt(root: unknown, path: Path): string[] {
  const shapes = shapesAt(path);
  const chosen = valueAt(root, [...path, 'protocol']);
  const fitting = shapes.filter(({ properties }) => {
    const protocol = ShapeSchema.safeParse(properties?.['protocol']);
    return !protocol.success || protocol.data.const === undefined || protocol.data.const === chosen;
  });
  const names = (fitting.length > 0 ? fitting : shapes).flatMap(({ properties }) =>
    Object.keys(properties ?? {}),
  );
  return [...new Set(names)];
}

/** The discriminator values of a union. */
function optionsAt(path: Path): string[] {
  return shapesAt(path).flatMap((shape) => {
    if (shape.const !== undefined) return [shape.const];
    return (shape.enum ?? []).filter((one) => typeof one === 'string');
  });
}

/** The name within two edits of `key` (one edit for short keys), if any. */
export function closestName(key: string, names: readonly string[]): string | undefined {
  const allowed = key.length <= 4 ? 1 : 2;
  const scored = names
    .map((name) => ({ name, edits: editDistance(key.toLowerCase(), name.toLowerCase()) }))
    .filter(({ edits }) => edits <= allowed)
    .sort((a, b) => a.edits - b.edits);
  return scored[0]?.name;
}

/** Counts insertions, deletions, replacements and swaps of neighbours. */
function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3;
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= a.length; row += 1) {
    const cells: number[] = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const same = a[row - 1] === b[column - 1];
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const cell = (r: number, c: number) =>
        (r === row ? cells[c] : rows[r]?.[c]) ?? Number.POSITIVE_INFINITY;
      cells.push(
        Math.min(
          cell(row - 1, column) + 1,
          cell(row, column - 1) + 1,
          cell(row - 1, column - 1) + (same ? 0 : 1),
          swapped ? cell(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
    rows.push(cells);
  }
  return rows[a.length]?.[b.length] ?? Number.POSITIVE_INFINITY;
}
