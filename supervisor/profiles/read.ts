import { HoldfastError } from '../../protocol/errors.ts';
import { findStartProblems } from '../../protocol/profile-validation.ts';
import { applyPreset } from '../../protocol/presets/apply.ts';
import { ProfileSchema, type Profile, unsupportedFields } from '../../protocol/profile.ts';
import { type ProfileProblem, findProblems, parseYaml } from './problems.ts';
import { PROFILE_FILE } from '../../project/profile-file.ts';
import { readProfileText } from '../../project/profile-text.ts';

/**
 * Reads and validates DIRECTORY/holdfast.yaml. Errors: `not_found` (no such folder), `profile_invalid` (no file, bad
 * YAML, an unknown key, a wrong value; `details.problems` has line and column of each), `not_supported` (fields that
 * this version does not support).
 */
export async function readProfile(directory: string): Promise<Profile> {
  return checkProfile(await readProfileText(directory));
}

/** Like `readProfile`, for the text of the file. */
export function checkProfile(text: string): Profile {
  const document = parseYaml(text);
  if ('problems' in document) throw invalid(document.problems);
  const complete = { ...document, value: applyPreset(document.value) };
  const parsed = ProfileSchema.safeParse(complete.value);
  if (!parsed.success) throw invalid(findProblems(complete, parsed.error.issues));
  const unstartable = findStartProblems(parsed.data);
  if (unstartable.length > 0) {
    const issues = unstartable.map(({ path, message }) => ({
      code: 'custom' as const,
      path: path.map((key) => (/^\d+$/.test(key) ? Number(key) : key)),
      message,
      input: undefined,
    }));
    throw invalid(findProblems(complete, issues));
  }
  const unsupported = unsupportedFields(parsed.data);
  if (unsupported.length > 0) {
    throw new HoldfastError(
      'not_supported',
      `${PROFILE_FILE} uses fields that this version does not support`,
      {
        why: unsupported.map(({ field }) => `\`${field}\``).join(', '),
        next: unsupported.map(({ field, next }) => `${field}: ${next}`).join('; '),
        details: { fields: unsupported.map(({ field }) => field) },
      },
    );
  }
  return parsed.data;
}

function invalid(problems: readonly ProfileProblem[]): HoldfastError {
  const shown = problems.map(({ line, column, message }) => `${PROFILE_FILE}:${line}:${column}: ${message}`);
  const more = problems.length > 5 ? [`and ${problems.length - 5} more`] : [];
  const [first] = problems;
  return new HoldfastError('profile_invalid', 'The profile cannot be used', {
    why: [...shown.slice(0, 5), ...more].join('; '),
    next: 'correct the file and deploy again',
    details: {
      file: PROFILE_FILE,
      ...(first === undefined ? {} : { line: first.line, column: first.column }),
      problems: problems.slice(0, 50).map(({ line, column, message }) => ({ line, column, message })),
    },
  });
}
