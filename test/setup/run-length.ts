/** True in the soak run (`npm run test:soak`), which repeats more and prints what it measures. */
export const SOAK = process.env['HOLDFAST_SOAK'] === '1';

/** How often a test repeats something: in an ordinary run and in the soak run. */
export function soakCount(short: number, long: number): number {
  return SOAK ? long : short;
}

/** Prints a measurement in the soak run; a test that passes in an ordinary run prints nothing. */
export function printInSoak(text: string): void {
  if (SOAK) console.log(text);
}
