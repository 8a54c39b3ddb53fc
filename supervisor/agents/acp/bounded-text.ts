/** At most `characters` UTF-16 units, without half of a character at the end, and well formed. */
export function cutText(text: string, characters: number): string {
  if (text.length <= characters) return text.toWellFormed();
  const last = text.charCodeAt(characters - 2);
  const end = last >= 0xd800 && last < 0xdc00 ? characters - 2 : characters - 1;
  return `${text.slice(0, end)}…`.toWellFormed();
}

/**
 * A copy of JSON data whose text has about `bytes` bytes at most: long strings are cut and say so, and further members are left
 * out. The data is as deep as `LINE_LIMITS` allows at most.
 */
export function cutJson(value: unknown, bytes: number): unknown {
  const budget = { left: bytes };
  return copy(value, budget);
}

/** Fixed costs of a member: quotes, colon, comma. */
const MEMBER_BYTES = 6;

function copy(value: unknown, budget: { left: number }): unknown {
  if (typeof value === 'string') return copyText(value, budget);
  budget.left -= MEMBER_BYTES;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    for (const item of value as readonly unknown[]) {
      if (budget.left <= 0) {
        items.push('[cut]');
        break;
      }
      items.push(copy(item, budget));
    }
    return items;
  }
  const members: [string, unknown][] = [];
  for (const [key, member] of Object.entries(value)) {
    if (budget.left <= 0) {
      members.push(['…', '[cut]']);
      break;
    }
    budget.left -= Math.min(key.length, 200) + MEMBER_BYTES;
    members.push([cutText(key, 200), copy(member, budget)]);
  }
  // Not an assignment: `__proto__` is a name like any other.
  return Object.fromEntries(members);
}

function copyText(text: string, budget: { left: number }): string {
  const room = Math.max(0, budget.left - MEMBER_BYTES);
  const size = Buffer.byteLength(text);
  if (size <= room) {
    budget.left -= size + MEMBER_BYTES;
    return text.toWellFormed();
  }
  budget.left = 0;
  // Three bytes for a UTF-16 unit at most.
  const kept = cutText(text, Math.max(1, Math.floor(room / 3)));
  return `${kept} [cut: ${size} bytes]`;
}
