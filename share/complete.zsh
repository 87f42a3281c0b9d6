#compdef zc zplan zrun zdata zckpt zkeep zlog
# Completion of Zug's programs in zsh, from what each says with --help: so it cannot lag behind.
local program=${words[1]:t} help
local -a options commands
help=$($words[1] --help 2>/dev/null)
if [[ $words[CURRENT] == -* ]]; then
  options=(${(fu)"$(print -r -- $help | grep -oE -- '(^|[^[:alnum:]_-])--?[A-Za-z][A-Za-z-]*' | grep -oE -- '-.*')"})
  compadd -- $options
else
  if (( CURRENT == 2 )); then
    commands=(${(fu)"$({ print -r -- $help | grep -oE "(^|[^[:alnum:]])$program [a-z]+"
      print -r -- $help | grep -oE '^  [a-z]+  ' } | grep -oE '[a-z]+ *$' | tr -d ' ')"})
    compadd -- $commands
  fi
  _files
fi
