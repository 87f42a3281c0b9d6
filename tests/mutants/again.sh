# again OUTPUT TO FROM WITH EXTRA: runs the recorded command that makes OUTPUT, so that it makes TO, with the argument
# WITH for FROM and with the words of EXTRA at its end. Read by run.sh and judge.sh, used in the build folder; $commands:
# the folder of record.sh.
again() {
  again_output=$1 again_to=$2 again_from=$3 again_with=$4 again_extra=$5 again_skip=no
  [ -f "$commands/$again_output" ] || return 1
  set --
  while IFS= read -r word; do
    [ $again_skip = yes ] && again_skip=no && continue
    case $word in
    -MT | -MF) again_skip=yes && continue ;;
    -MD | -MP | -g) continue ;;
    esac
    [ "$word" = "$again_output" ] && word=$again_to
    [ "$word" = "$again_from" ] && word=$again_with
    set -- "$@" "$word"
  done <"$commands/$again_output"
  "$@" $again_extra
}
