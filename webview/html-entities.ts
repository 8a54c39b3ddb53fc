const box = document.createElement('textarea');

/** `&copy;` as its character; what names none stays as it is. Called by the Markdown parser, with one name at a time. */
export function decodeHTMLStrict(reference: string): string {
  // No element can begin in a text area.
  box.innerHTML = reference;
  const { value } = box;
  // For the sake of old documents a browser also takes names without their end: `&notit;` would be `¬it;`.
  return value.length > 1 && value.endsWith(';') ? reference : value;
}
