# Completion of Zug's programs in bash. The program itself says what may come next (--complete).
_zug() {
  local word=${COMP_WORDS[COMP_CWORD]} kind=-v
  [[ $word == -* ]] && kind=-e
  mapfile -t COMPREPLY < <(compgen -W "$("$1" --complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null | grep "$kind" '^-')" -- "$word")
}
# Without a match: files.
complete -o default -F _zug zc zplan zrun zdata zckpt zkeep zlog
