/** Before the suites that run the built program: fails if `vitest.config.ts` could not build it. */
export default function setup(): void {
  const failed = process.env['HOLDFAST_TEST_BUILD_FAILED'];
  if (failed !== undefined) throw new Error(`the program could not be built: ${failed}`);
}
