/** A command agent in an image that holds nothing: our busybox is all there is. Its prompt is a script. */
export function bareProject(name: string, image: string, more = ''): Record<string, string> {
  return {
    'holdfast.yaml': `name: ${name}
image: ${image}
agent: { protocol: command, command: [/opt/holdfast/busybox, sh] }
persistence: persistent
env: { PATH: /opt/holdfast }
${more}`,
  };
}

/** In scripts of such an agent: programs by their plain names. */
export const APPLETS = `for a in sleep cat ls mkdir head sha256sum seq; do alias $a="busybox $a"; done
`;
