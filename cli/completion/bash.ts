import type { CompletionNode } from './tree.ts';

/** Words are compared and quoted one by one: `compgen -W` would let the shell evaluate a session's name. */
export function bashScript(tree: readonly CompletionNode[]): string {
  const cases = tree.map((node) => {
    const key = node.path.join(' ');
    const words = [...node.subcommands.map((one) => one.name), ...node.options.map((option) => option.flag)];
    const valued = node.options.filter((option) => option.takesValue).map((option) => option.flag);
    return `    '${key}') words='${words.join(' ')}' valued='${valued.join(' ')}' operands='${node.operands.join(' ')}' ;;`;
  });
  return `# bash completion for holdfast; made by: holdfast completion bash
_holdfast_node() {
  case "$1" in
${cases.join('\n')}
    *) return 1 ;;
  esac
}

_holdfast() {
  local cur=\${COMP_WORDS[COMP_CWORD]} node='' words='' valued='' operands='' word index=1 position=0 skip=0 literal=0
  COMPREPLY=()
  _holdfast_node ''
  for ((; index < COMP_CWORD; index++)); do
    word=\${COMP_WORDS[index]}
    if ((skip)); then skip=0; continue; fi
    if [[ $word == -- ]]; then literal=1; break; fi
    if [[ $word == -* ]]; then
      [[ " $valued " == *" $word "* ]] && skip=1
      continue
    fi
    if _holdfast_node "\${node:+$node }$word"; then node="\${node:+$node }$word"; else ((position++)); fi
  done
  if ((literal)); then compopt -o default 2>/dev/null; return; fi
  if ((skip)); then compopt -o default 2>/dev/null; return; fi
  local -a kinds=($operands) candidates=()
  local kind=\${kinds[position]:-}
  if [[ $cur == -* || -z $kind ]]; then
    candidates=($words)
  elif [[ $kind == directory ]]; then
    compopt -o dirnames 2>/dev/null
    return
  elif [[ $kind == session || $kind == profile ]]; then
    mapfile -t candidates < <("\${COMP_WORDS[0]}" __complete "$kind" 2>/dev/null)
  fi
  local candidate
  for candidate in "\${candidates[@]}"; do
    [[ $candidate == "$cur"* ]] && COMPREPLY+=("$(printf '%q' "$candidate")")
  done
}
complete -F _holdfast holdfast
`;
}
