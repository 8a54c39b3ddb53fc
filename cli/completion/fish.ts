import type { CompletionNode } from './tree.ts';

export function fishScript(tree: readonly CompletionNode[]): string {
  const groups = tree
    .filter((node) => node.path.length > 0 && node.subcommands.length > 0)
    .map((node) => node.path[0] ?? '');
  const lines = tree.flatMap((node) => {
    const condition = `-n "__holdfast_at '${node.path.join(' ')}'"`;
    const commands = node.subcommands.map(
      (one) => `complete -c holdfast -f ${condition} -a '${one.name}' -d '${one.description}'`,
    );
    const options = node.options.map((option) => {
      const flag = option.flag.startsWith('--') ? `-l ${option.flag.slice(2)}` : `-s ${option.flag.slice(1)}`;
      return `complete -c holdfast -f ${condition} ${flag}${option.takesValue ? ' -r' : ''} -d '${option.description}'`;
    });
    const operands = node.operands.flatMap((kind) => {
      if (kind === 'session' || kind === 'profile') {
        return [`complete -c holdfast -f ${condition} -a "(holdfast __complete ${kind} 2>/dev/null)"`];
      }
      return kind === 'directory'
        ? [`complete -c holdfast ${condition} -a "(__fish_complete_directories)"`]
        : [];
    });
    return [...commands, ...options, ...operands];
  });
  return `# fish completion for holdfast; made by: holdfast completion fish
function __holdfast_at
    set -l groups ${groups.join(' ')}
    set -l path
    for word in (commandline -opc)[2..-1]
        if string match -q -- '-*' $word
            continue
        end
        if test (count $path) -eq 0
            set path $word
        else if test (count $path) -eq 1; and contains -- $path[1] $groups
            set path $path $word
        end
    end
    test "$path" = "$argv[1]"
end
complete -c holdfast -f
${lines.join('\n')}
`;
}
