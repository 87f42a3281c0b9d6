# Colours for editors: the expressions of the files that are made of lang/scan.l and lang/directives.def are ones that
# editors take, and words have the colours that the language gives them.
. "$ZUG_SRC/tests/scenarios/lib.sh"
made=$ZUG_BUILD/editors
cat >colours.zug <<'END'
model M(state = 4) {
  axis batch, a = 1_000
  state mean[a] = 0
  update mean = 0.9 * mean
  y = block_of(update, auxiliary)
  aux 100 # loss of words
  loss xent[a](y, y) per known(y)
}
recipe R { prefetch 2 }
END

# ---- VS Code: JSON, and a regular expression in each rule ----
if command -v python3 >/dev/null; then
  for f in "$made/vscode/zug.tmLanguage.json" "$ZUG_SRC"/editors/vscode/*.json; do ok python3 -m json.tool "$f"; done
else
  echo "no python3: whether the files are JSON is not tried"
fi
sed -n 's/.*"name": "\(.*\)\.zug", "match": "\(.*\)"}.*/\1 \2/p' "$made/vscode/zug.tmLanguage.json" |
  sed 's/\\\\/\\/g; s/\\"/"/g' >rules.txt
[ "$(wc -l <rules.txt)" -eq "$(grep -c '"match"' "$made/vscode/zug.tmLanguage.json")" ] && [ -s rules.txt ] || fail "rules that are read otherwise"
if echo x | grep -qP x 2>/dev/null; then
  while read -r name expression; do
    grep -P -- "$expression" colours.zug >/dev/null 2>why.txt
    [ $? -lt 2 ] || { cat why.txt; fail "$name: '$expression' is not a regular expression"; }
  done <rules.txt
  # coloured RULE WORD...: what the rules of that name find in the model, in order
  coloured() {
    sed -n "s/^$1 //p" rules.txt >expression.txt
    shift
    found=$(grep -oPf expression.txt colours.zug | tr '\n' ' ')
    [ "$found" = "$* " ] || fail "coloured: $found, wanted $*"
  }
  sed -n 's/^keyword.control //p' rules.txt | sed 's/.*/(?:&)/' | paste -sd '|' >either.txt
  found=$(grep -oPf either.txt colours.zug | tr '\n' ' ')
  [ "$found" = 'model axis state update aux loss loss per recipe prefetch ' ] || fail "keywords: $found"
  coloured entity.name.function M mean block_of xent known
  coloured constant.numeric 4 1_000 0 0.9 100 2
else
  echo "grep knows no -P: whether rules are regular expressions is not tried"
fi

# ---- Vim ----
command -v vim >/dev/null || { echo "no vim: its syntax file is not tried"; exit 0; }
cat >look.vim <<'END'
function Group(line, word)
  let column = match(getline(a:line), '\<' . a:word . '\>') + 1
  return synIDattr(synID(a:line, column, 1), 'name')
endfunction
function Look()
  let out = ['error: ' . v:errmsg]
  for [line, word] in [[1, 'model'], [1, 'state'], [2, '1_000'], [3, 'state'], [3, 'mean'], [4, 'update'], [5, 'update'],
        \ [5, 'block_of'], [5, 'auxiliary'], [6, 'aux'], [6, 'loss'], [7, 'loss'], [7, 'xent'], [7, 'per'],
        \ [9, 'recipe'], [9, 'prefetch']]
    call add(out, line . ' ' . word . ': ' . Group(line, word))
  endfor
  call writefile(out, 'looks.txt')
endfunction
END
cat >wanted.txt <<'END'
error: 
1 model: zugKeyword
1 state: 
2 1_000: zugNumber
3 state: zugKeyword
3 mean: zugCall
4 update: zugKeyword
5 update: 
5 block_of: zugCall
5 auxiliary: 
6 aux: zugKeyword
6 loss: zugComment
7 loss: zugKeyword
7 xent: zugCall
7 per: zugKeyword
9 recipe: zugKeyword
9 prefetch: zugKeyword
END
timeout -k 5 60 vim -Nu NONE -i NONE -n -es --cmd "set runtimepath^=$made/vim" -c 'redir! > messages.txt' -c 'filetype plugin on' -c 'syntax on' \
  -c "edit colours.zug" -c 'source look.vim' -c 'call Look()' -c 'redir END' -c 'qa!' </dev/null
[ -s looks.txt ] || { echo "this vim has no syntax files"; exit 0; }
diff wanted.txt looks.txt || { cat messages.txt; fail "Vim's colours"; }
! grep -E 'E[0-9]+:|Error' messages.txt || fail "Vim's messages"
