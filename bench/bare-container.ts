import type Docker from 'dockerode';

/** What a benchmark starts beside us carries it, and goes with `removeBareContainers`. */
export const BENCH_LABEL = { name: 'dev.holdfast.bench', value: String(process.pid) } as const;
let made = 0;

/** The peer of a sandbox: one container as locked up as ours, without anything of ours in it. */
export function bareContainer(image: string): Docker.ContainerCreateOptions & { readonly name: string } {
  made += 1;
  return {
    name: `holdfast-bench-${String(process.pid)}-${String(made)}`,
    Image: image,
    Cmd: ['sleep', '600'],
    User: '210000:210000',
    Labels: { [BENCH_LABEL.name]: BENCH_LABEL.value },
    HostConfig: {
      NetworkMode: 'none',
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges:true'],
      ReadonlyRootfs: true,
      Init: true,
      LogConfig: { Type: 'none', Config: {} },
      PidsLimit: 1024,
      Memory: 4 * 2 ** 30,
      Tmpfs: { '/tmp': 'rw,exec,mode=1777' },
    },
  };
}

/** The same by the command line, with what it needs no options for left out. */
export function bareRunArguments(image: string): { readonly name: string; readonly args: string[] } {
  const { name } = bareContainer(image);
  const label = `${BENCH_LABEL.name}=${BENCH_LABEL.value}`;
  const locked = ['--network', 'none', '--read-only', '--cap-drop', 'ALL', '--init'];
  return { name, args: ['run', '-d', '--name', name, '--label', label, ...locked, image, 'sleep', '600'] };
}

/** Those that this process has made and not removed. */
export async function removeBareContainers(docker: Docker): Promise<void> {
  const filters = { label: [`${BENCH_LABEL.name}=${BENCH_LABEL.value}`] };
  for (const { Id } of await docker.listContainers({ all: true, filters }))
    await docker.getContainer(Id).remove({ force: true });
}
