import { z } from 'zod';

/** `agent.config` for the person's own HOME, of which only the preset's files are read. */
export const OWN_HOME = '~';

/** A configuration is text that people wrote: more is a mistake. */
export const CONFIG_LIMITS = { bytes: 16 * 2 ** 20, files: 2000, fileBytes: 4 * 2 ** 20 } as const;

/** A folder inside the project that is laid out as HOME, or `~`. */
export const ConfigFolderSchema = z
  .string()
  .max(500)
  .refine(
    (path) =>
      path === OWN_HOME ||
      path.split('/').every((name) => /^[A-Za-z0-9._-]+$/.test(name) && name !== '.' && name !== '..'),
    'a folder inside the project such as agent-home, or ~ for the files of the preset in your own HOME',
  );

/** Whether a path of the project is the folder, or in it. */
export function isInConfigFolder(path: string, folder: string | undefined): boolean {
  return folder !== undefined && folder !== OWN_HOME && (path === folder || path.startsWith(`${folder}/`));
}

/** What of a configuration is copied, and what is not. Paths are below HOME. */
export const ConfigurationListSchema = z.object({
  /** The folder as the profile names it. */
  folder: z.string(),
  files: z.array(z.object({ path: z.string(), bytes: z.number().int().nonnegative() })),
  /** `path`: a file, or an entry in it (`.mcp.json: mcpServers.search.env.TOKEN`). */
  leftOut: z.array(z.object({ path: z.string(), why: z.string() })),
});
export type ConfigurationList = z.infer<typeof ConfigurationListSchema>;
