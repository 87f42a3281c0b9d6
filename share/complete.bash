# Completion of Zug's programs in bash, from what each says with --help: so it cannot lag behind.
_zug() {
  local program=${1##*/} word=${COMP_WORDS[COMP_CWORD]} help
  help=$("$1" --help 2>/dev/null)
  COMPREPLY=()
  case $word in
  -*) mapfile -t COMPREPLY < <(compgen -W "$(grep -oE -- '(^|[^[:alnum:]_-])--?[A-Za-z][A-Za-z-]*' <<<"$help" |
    grep -oE -- '-.*' | sort -u)" -- "$word") ;;
  *) [ "$COMP_CWORD" -gt 1 ] || mapfile -t COMPREPLY < <(compgen -W "$({
    grep -oE "(^|[^[:alnum:]])$program [a-z]+" <<<"$help"
    grep -oE '^  [a-z]+  ' <<<"$help"
  } | grep -oE '[a-z]+ *$')" -- "$word") ;;
  esac
}
# Where nothing of this fits: files.
complete -o default -F _zug zc zplan zrun zdata zckpt zkeep zlog
