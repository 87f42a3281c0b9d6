# Text files as a C table, for what the tools carry inside them (the standard library, the error index):
#
#   awk -f base/embed.awk -v name=zl_stdlib -v root=$(srcdir)/stdlib/ FILE... > embed.c
#
# gives `const char *const zl_stdlib[] = {"std/nn.zug", "text...", NULL};`: name and text in turn.
# The text must not contain NUL bytes.
BEGIN {
  printf "/* Made by base/embed.awk. */\n"
  printf "#include <stddef.h>\n"
  printf "extern const char *const %s[];\n", name
  printf "const char *const %s[] = {\n", name
}
FNR == 1 {
  if (files++) print "  ,"
  file = FILENAME
  if (index(file, root) == 1) file = substr(file, length(root) + 1)
  printf "  \"%s\",\n", file
}
{
  gsub(/\\/, "&&")
  gsub(/"/, "\\\"")
  gsub(/\t/, "\\t")
  gsub(/\r/, "\\r")
  gsub(/\?/, "\\?") # no trigraphs
  printf "  \"%s\\n\"\n", $0
}
END { print "  ,\n  NULL};" }
