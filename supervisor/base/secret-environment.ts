/** Secrets as variables of their names: those that are text without NUL. */
export function environmentOfSecrets(
  secrets: readonly { readonly name: string; readonly value: Buffer }[],
): Record<string, string> {
  return Object.fromEntries(
    secrets.flatMap(({ name, value }) => {
      const text = value.toString('utf8');
      return Buffer.from(text).equals(value) && !text.includes('\0') ? [[name, text]] : [];
    }),
  );
}
