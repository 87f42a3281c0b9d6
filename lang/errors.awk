# The sections of ERRORS.md as a C table, code and text in turn: awk -f errors.awk ERRORS.md > errors.embed.c
BEGIN {
  print "/* Made by lang/errors.awk. */"
  print "#include <stddef.h>"
  print "extern const char *const zl_errors_md[];"
  print "const char *const zl_errors_md[] = {"
}
/^## Z[0-9][0-9][0-9][0-9]: / {
  if (sections++) print "  ,"
  printf "  \"%s\",\n", substr($0, 4, 5)
}
sections {
  gsub(/[\\"]/, "\\\\&") # a backslash before each
  printf "  \"%s\\n\"\n", $0
}
END { print "  ,\n  NULL};" }
