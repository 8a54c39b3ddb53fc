import { z } from 'zod';
import type { Language } from './languages.ts';

/** What the page shows of a tool call when it is unfolded. */
export type ToolPart =
  | { readonly kind: 'text'; readonly label: string; readonly text: string; readonly language?: Language }
  | { readonly kind: 'diff'; readonly path: string; readonly before: string; readonly after: string };

const DiffSchema = z.object({
  type: z.literal('diff'),
  path: z.string(),
  oldText: z.string().nullish(),
  newText: z.string(),
});
const TextSchema = z.object({
  type: z.literal('content'),
  content: z.object({ type: z.literal('text'), text: z.string() }),
});
const DetailsSchema = z.object({
  content: z.array(z.unknown()).nullish(),
  rawInput: z.unknown().optional(),
  rawOutput: z.unknown().optional(),
  input: z.unknown().optional(),
  output: z.unknown().optional(),
});
const MAX_PARTS = 50;

/** Reads the JSON of a tool call. Whatever an agent put there gives parts: at worst the JSON itself. */
export function toolParts(json: string): readonly ToolPart[] {
  const details = DetailsSchema.safeParse(parse(json)).data;
  if (details === undefined) return [{ kind: 'text', label: 'Details', text: json }];
  const parts: ToolPart[] = [];
  const input = describe(details.input ?? details.rawInput);
  if (input !== null) parts.push({ kind: 'text', label: 'Input', ...input });
  for (const one of (details.content ?? []).slice(0, MAX_PARTS)) {
    const diff = DiffSchema.safeParse(one).data;
    const text = TextSchema.safeParse(one).data;
    if (diff !== undefined) {
      parts.push({ kind: 'diff', path: diff.path, before: diff.oldText ?? '', after: diff.newText });
    } else if (text !== undefined) parts.push({ kind: 'text', label: 'Output', text: text.content.text });
    else parts.push({ kind: 'text', label: 'Details', text: JSON.stringify(one, null, 2), language: 'json' });
  }
  const output = describe(details.output ?? details.rawOutput);
  const isShown = parts.some((part) => part.kind === 'text' && part.label === 'Output');
  if (output !== null && !isShown) parts.push({ kind: 'text', label: 'Output', ...output });
  return parts;
}

const PlanSchema = z.array(
  z.object({
    content: z.string(),
    status: z.enum(['pending', 'in_progress', 'completed']).catch('pending'),
  }),
);
export type PlanEntry = z.infer<typeof PlanSchema>[number];

/** The entries of a plan; empty where the text is not one. */
export function planEntries(text: string | null): readonly PlanEntry[] {
  const value = parse(text ?? '');
  return PlanSchema.safeParse(value).data ?? [];
}

/** A command is shown as it is typed; anything else as JSON. */
function describe(value: unknown): { readonly text: string; readonly language?: Language } | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string') return { text: value };
  if (typeof value === 'object' && 'command' in value) {
    const { command } = value;
    if (typeof command === 'string') return { text: command, language: 'bash' };
    if (Array.isArray(command)) return { text: command.map(String).join(' '), language: 'bash' };
  }
  return { text: JSON.stringify(value, null, 2), language: 'json' };
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
