# A man page of what a program says with --help, so that the two cannot differ:
#
#   ./zc --help | awk -f share/man.awk -v name=zc -v what="compile a model" -v version=0.1 > zc.1
#
# The text stays as it is laid out: options in columns, usage first.
BEGIN {
  printf ".\\\" Made by share/man.awk of `%s --help`.\n", name
  printf ".TH %s 1 \"\" \"zug %s\" \"Zug\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n", toupper(name), version, name, what
}
{
  gsub(/\\/, "\\\\e")
  gsub(/-/, "\\\\-")
  if (/^[.']/) $0 = "\\&" $0
  print
}
END {
  printf ".fi\n.SH SEE ALSO\n"
  n = split("zc zplan zrun zdata zckpt zkeep zlog", all, " ")
  for (i = 1; i <= n; i++) if (all[i] != name) printf "%s.BR %s (1)", separator, all[i], separator = ",\n"
  print ""
}
