#compdef zc zplan zrun zdata zckpt zkeep zlog
# Completion of Zug's programs in zsh, from what each says with --help: so it cannot lag behind.
local zug_words='
@WORDS@
'
local -a all
all=(${(fu)"$($words[1] --help 2>/dev/null | awk -v program=${words[1]:t} $zug_words)"})
if [[ $words[CURRENT] == -* ]]; then
  compadd -- ${(M)all:#-*}
else
  (( CURRENT == 2 )) && compadd -- ${all:#-*}
  _files
fi
