/** Milliseconds of a processor that this process used meanwhile: unlike time on a clock, other programs do not add to it. */
export async function processorMs(act: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await act();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
