#compdef zc zplan zrun zdata zckpt zkeep zlog
# Completion of Zug's programs in zsh. The program itself says what may come next (--complete).
local -a all
all=(${(f)"$($words[1] --complete ${words[2,CURRENT-1]} 2>/dev/null)"})
if [[ $words[CURRENT] == -* ]]; then
  compadd -- ${(M)all:#-*}
else
  compadd -- ${all:#-*}
  _files
fi
