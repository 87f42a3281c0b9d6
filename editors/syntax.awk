# Syntax files for editors, of the words that the scanner knows: so they cannot lag behind the language.
#
#   awk -f editors/syntax.awk -v form=vim lang/scan.l lang/directives.def > zug.vim             Vim
#   awk -f editors/syntax.awk -v form=textmate lang/scan.l lang/directives.def > zug.json       VS Code, and others that read TextMate's
# A word with a trailing context (`"state"/[ \t]+{ID}...`) begins a statement where a name follows, and is a name elsewhere.
/^(<[*A-Z_,]*>)?"[a-z][a-z0-9]*"/ {
  split($0, part, "\"")
  word = part[2]
  if (!seen[word]++) {
    if (part[3] ~ /^\//) starts = starts (starts == "" ? "" : " ") word
    else if (/elem_token|return INDEX/) types = types (types == "" ? "" : " ") word
    else words = words (words == "" ? "" : " ") word
  }
}
/^(DIRECTIVE|NUMBER|CHOICE|LATER)\( *[A-Z]+, *[a-z]+,/ {
  split($0, part, /, */)
  if (!seen[part[2]]++) words = words " " part[2]
}
function either(list, by) {
  gsub(/ /, by, list)
  return list
}
function vim() {
  print "\" Vim syntax of Zug's model files. Made by editors/syntax.awk of lang/scan.l and lang/directives.def."
  print "if exists(\"b:current_syntax\")\n  finish\nendif"
  print "syn keyword zugKeyword " words
  print "syn keyword zugType " types
  print "syn match zugCall \"\\<\\h\\w*\\ze\\s*[\\[(]\""
  if (starts != "") print "syn match zugKeyword \"\\<\\%(" either(starts, "\\|") "\\)\\ze\\s\\+\\h\""
  print "syn match zugNumber \"\\<\\d[0-9_]*\\%(\\.\\d[0-9_]*\\)\\?\\%([eE][-+]\\?\\d\\+\\)\\?\\>\""
  print "syn region zugString start=+\"+ end=+\"+ oneline"
  print "syn match zugComment \"#.*$\" contains=zugTodo,@Spell"
  print "syn keyword zugTodo TODO FIXME contained"
  print "setlocal commentstring=#\\ %s"
  n = split("Keyword Type Number String Comment Todo", group, " ")
  for (i = 1; i <= n; i++) print "hi def link zug" group[i] " " group[i]
  print "hi def link zugCall Function"
  print "let b:current_syntax = \"zug\""
}
function pattern(name, regex, last) {
  printf "    {\"name\": \"%s.zug\", \"match\": \"%s\"}%s\n", name, regex, last ? "" : ","
}
function textmate() {
  print "{\n  \"name\": \"Zug\",\n  \"scopeName\": \"source.zug\",\n  \"fileTypes\": [\"zug\"],\n  \"patterns\": ["
  pattern("comment.line.number-sign", "#.*$")
  pattern("string.quoted.double", "\\\"[^\\\"]*\\\"")
  pattern("keyword.control", "\\\\b(" either(words, "|") ")\\\\b")
  if (starts != "") pattern("keyword.control", "\\\\b(" either(starts, "|") ")(?=\\\\s+[A-Za-z_])")
  pattern("storage.type", "\\\\b(" either(types, "|") ")\\\\b")
  pattern("constant.numeric", "\\\\b[0-9][0-9_]*(\\\\.[0-9][0-9_]*)?([eE][-+]?[0-9]+)?\\\\b")
  pattern("entity.name.function", "\\\\b[A-Za-z_][A-Za-z0-9_]*(?=\\\\s*[\\\\[(])", 1)
  print "  ]\n}"
}
END {
  if (form == "vim") vim()
  else textmate()
}
