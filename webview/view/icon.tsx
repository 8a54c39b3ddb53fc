/** A codicon, which says nothing to a screen reader. */
export function Icon({ name, spin = false }: { readonly name: string; readonly spin?: boolean }) {
  return <span class={`codicon codicon-${name}${spin ? ' spin' : ''}`} aria-hidden="true" />;
}
