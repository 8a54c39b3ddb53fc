import type { CompletionNode } from './tree.ts';

export function zshScript(tree: readonly CompletionNode[]): string {
  const cases = tree.map((node) => {
    const commands = node.subcommands.map((one) => `'${one.name}:${one.description}'`);
    const options = node.options.map((option) => `'${option.flag}:${option.description}'`);
    const valued = node.options.filter((option) => option.takesValue).map((option) => option.flag);
    return `    '${node.path.join(' ')}')
      commands=(${commands.join(' ')})
      options=(${options.join(' ')})
      valued=(${valued.join(' ')})
      operands=(${node.operands.join(' ')}) ;;`;
  });
  return `#compdef holdfast
# zsh completion for holdfast; made by: holdfast completion zsh
_holdfast_node() {
  case "$1" in
${cases.join('\n')}
    *) return 1 ;;
  esac
}

_holdfast() {
  local node='' word kind
  local -i position=0 skip=0 index=2
  local -a commands options valued operands
  _holdfast_node ''
  for ((; index < CURRENT; index++)); do
    word=\${words[index]}
    if ((skip)); then skip=0; continue; fi
    if [[ $word == -- ]]; then _files; return; fi
    if [[ $word == -* ]]; then
      ((\${valued[(Ie)$word]})) && skip=1
      continue
    fi
    if _holdfast_node "\${node:+$node }$word"; then node="\${node:+$node }$word"; else ((position++)); fi
  done
  if ((skip)); then _files; return; fi
  kind=\${operands[position+1]}
  if [[ $PREFIX == -* ]]; then
    _describe option options
  elif ((\${#commands})); then
    _describe command commands
  elif [[ $kind == directory ]]; then
    _files -/
  elif [[ $kind == session || $kind == profile ]]; then
    local -a found
    found=("\${(@f)$(\${words[1]} __complete $kind 2>/dev/null)}")
    ((\${#found})) && compadd -a found
  else
    _describe option options
  fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
`;
}
