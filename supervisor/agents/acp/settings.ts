import { z } from 'zod';
import { type OpenedSchema, lenient, text } from './wire.ts';

const SelectValueSchema = z.object({ value: text(500), name: z.string().catch('') });
const ConfigOptionSchema = z.object({
  id: text(200),
  name: z.string().catch(''),
  category: lenient(z.string()),
  type: lenient(z.string()),
  currentValue: z.unknown().optional(),
  options: z.unknown().optional(),
});
const ModeSchema = z.object({ id: text(500), name: z.string().catch('') });

/** A setting that an agent offers. */
export const SettingSchema = z.object({
  id: z.string(),
  name: z.string(),
  /** `mode`, `model` or another of the protocol's; empty for none. */
  category: z.string(),
  value: z.string(),
  values: z.array(z.object({ value: z.string(), name: z.string() })),
  /** How it is set: as a config option, or, with agents that have only modes, as a mode. */
  via: z.enum(['option', 'mode']),
});
export type Setting = z.infer<typeof SettingSchema>;

const MAX_SETTINGS = 32;
const MAX_VALUES = 100;
export const MODE_SETTING = 'mode';

/** The settings in the answer to `session/new` and its like, or in an update. Config options come before modes. */
export function settingsOf(opened: Pick<z.infer<typeof OpenedSchema>, 'modes' | 'configOptions'>): Setting[] {
  const options = (opened.configOptions ?? []).slice(0, MAX_SETTINGS).flatMap((item): Setting[] => {
    const { success, data } = ConfigOptionSchema.safeParse(item);
    if (!success) return [];
    if (typeof data.currentValue === 'boolean') {
      const values = [true, false].map((value) => ({ value: String(value), name: value ? 'on' : 'off' }));
      return [{ ...namesOf(data), value: String(data.currentValue), values, via: 'option' }];
    }
    if (typeof data.currentValue !== 'string') return [];
    return [
      {
        ...namesOf(data),
        value: data.currentValue.slice(0, 500),
        values: valuesOf(data.options),
        via: 'option',
      },
    ];
  });
  const { modes } = opened;
  if (modes === undefined || modes === null || options.some(({ category }) => category === 'mode'))
    return options;
  const values = modes.availableModes.slice(0, MAX_VALUES).flatMap((mode) => {
    const { success, data } = ModeSchema.safeParse(mode);
    return success ? [{ value: data.id, name: data.name.slice(0, 200) }] : [];
  });
  return [
    ...options,
    { id: MODE_SETTING, name: 'Mode', category: 'mode', value: modes.currentModeId, values, via: 'mode' },
  ];
}

function namesOf(option: z.infer<typeof ConfigOptionSchema>) {
  return { id: option.id, name: option.name.slice(0, 200), category: (option.category ?? '').slice(0, 100) };
}

/** Values, which agents may have in groups. Cut before it is looked at: an agent may list very many. */
function valuesOf(options: unknown): { value: string; name: string }[] {
  return firstOf(options)
    .flatMap((item): readonly unknown[] => {
      const group: unknown =
        typeof item === 'object' && item !== null ? (item as { options?: unknown }).options : undefined;
      return Array.isArray(group) ? firstOf(group) : [item];
    })
    .slice(0, MAX_VALUES)
    .flatMap((item) => {
      const { success, data } = SelectValueSchema.safeParse(item);
      return success ? [{ value: data.value, name: data.name.slice(0, 200) }] : [];
    });
}

function firstOf(items: unknown): readonly unknown[] {
  return Array.isArray(items) ? (items as unknown[]).slice(0, MAX_VALUES) : [];
}

export function isModel({ id, category }: Pick<Setting, 'id' | 'category'>): boolean {
  return category === 'model' || id === 'model';
}

/** The value that is meant by a person's words: its id, or its name. */
export function findValue({ values }: Pick<Setting, 'values'>, wanted: string): string | undefined {
  return (values.find(({ value }) => value === wanted) ?? values.find(({ name }) => name === wanted))?.value;
}

export function describeMissingModel(model: string, models: Setting | undefined): string {
  if (models === undefined)
    return `The model ${model} was not set: the agent does not let its model be chosen`;
  const known = models.values.slice(0, 20).map(({ value }) => value);
  return `The model ${model} was not set: the agent has ${known.join(', ')}`;
}
