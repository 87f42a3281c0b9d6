# page.awk: turns the man page that a program writes (--man-page, base/options.c) into a page of this folder.
function text(s) { # takes troff's escapes away
  gsub(/\\-/, "-", s)
  gsub(/\\&/, "", s)
  gsub(/\\e/, "\\", s)
  return s
}
function plain(s,   n, part, i, t) { # escapes what Markdown would take for itself; code between backquotes stays
  n = split(text(s), part, "`")
  for (i = 1; i <= n; i += 2) gsub(/[*<_[]/, "\\\\&", part[i])
  t = part[1]
  for (i = 2; i <= n; i++) t = t "`" part[i]
  return t
}
function sentence(s) { return toupper(substr(s, 1, 1)) substr(s, 2) }
function put(s) { # options of the same commands stand together, wherever the program lists them
  if (group == "") page = page s "\n"
  else body[group] = body[group] s "\n"
}
function cut() { # ends the last line so that the next one begins there, too
  if (group == "") sub(/\n$/, "\\\n", page)
  else sub(/\n$/, "\\\n", body[group])
}
function end_groups(   i) {
  for (i = 1; i <= groups; i++) page = page (i > 1 ? "\n" : "") "### " title[i] "\n\n" body[title[i]]
  groups = 0
  group = ""
}
/^\.TH / { name = tolower($2); next }
/^\.SH NAME/ { named = 1; next }
named {
  named = 0
  sub(/^.* \\- /, "")
  put("# " name "\n\n<!-- `make docs-reference` makes this page from `" name " --man-page`. -->\n\n" sentence(plain($0)) ".")
  next
}
/^\.SH / { end_groups(); put("\n## " sentence(tolower(substr($0, 5))) "\n"); next }
/^\.SS / {
  group = sentence(plain(substr($0, 5)))
  if (!(group in body)) title[++groups] = group
  next
}
/^\.TP/ { getline; gsub(/^\\fB|\\fR$/, ""); item = "- `" text($0) "`: "; next }
/^\.br/ { broken = 1; next }
broken { broken = 0; cut(); item = "  " }
{ put(item plain($0)); item = "" }
END { end_groups(); printf "%s", page }
