/**
 * What HOME begins with in each new sandbox. The mount of HOME hides the image's own files there, so a shell gets the
 * start files that people expect. They read the image's system-wide ones.
 */
export const START_FILES: Readonly<Record<string, string>> = {
  '.profile': `# Written for each new sandbox; to keep a change, name the file in agent.state.
if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then . "$HOME/.bashrc"; fi
case ":$PATH:" in
  *":$HOME/.local/bin:"*) ;;
  *) PATH="$HOME/.local/bin:$PATH" ;;
esac
`,
  '.bashrc': `# Written for each new sandbox; to keep a change, name the file in agent.state.
case $- in
  *i*) ;;
  *) return ;;
esac
[ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc
[ ! -r /etc/bashrc ] || . /etc/bashrc
HISTSIZE=1000
shopt -s checkwinsize
alias ll='ls -l'
`,
};
