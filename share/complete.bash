# Completion of Zug's programs in bash, from what each says with --help: so it cannot lag behind.
_zug_words='
@WORDS@
'
_zug() {
  local word=${COMP_WORDS[COMP_CWORD]} words
  words=$("$1" --help 2>/dev/null | awk -v program="${1##*/}" "$_zug_words" | sort -u)
  COMPREPLY=()
  case $word in
  -*) mapfile -t COMPREPLY < <(compgen -W "$(grep -- '^-' <<<"$words")" -- "$word") ;;
  *) [ "$COMP_CWORD" -gt 1 ] || mapfile -t COMPREPLY < <(compgen -W "$(grep -v -- '^-' <<<"$words")" -- "$word") ;;
  esac
}
# Where nothing of this fits: files.
complete -o default -F _zug zc zplan zrun zdata zckpt zkeep zlog
