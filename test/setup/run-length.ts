/** The long run (`npm run test:soak`) does more of everything, and prints what it measures. */
export const SOAK = process.env['HOLDFAST_SOAK'] === '1';

/** How often something is done: in a run of every day, and in the long one. */
export function soakCount(short: number, long: number): number {
  return SOAK ? long : short;
}

/** Something measured, for whoever reads the long run. A test of every day that passes prints nothing. */
export function printInSoak(text: string): void {
  if (SOAK) console.log(text);
}
