# What completion offers for a program: its options and its commands, one a line, of what it says with --help. Made into the
# completion of bash and of zsh (share/local.mk); program: its name. No quotes of the shell are in here.
#
# An option is one of the program where a line begins with it, before two blanks, or where it stands in a line of usage, which
# begins with the program and a command. Others are those of other programs, of which the text says something.
function take(s) {
  gsub(/(zc|zplan|zrun|zdata|zckpt|zkeep|zlog) --?[A-Za-z][A-Za-z-]*/, "", s)
  while (match(s, /(^|[^A-Za-z0-9_-])--?[A-Za-z][A-Za-z-]*/)) {
    word = substr(s, RSTART, RLENGTH)
    sub(/^[^-]/, "", word)
    print word
    s = substr(s, RSTART + RLENGTH)
  }
}
{
  line = $0
  sub(/^usage: /, "       ", line)
  usage = index(line, program " ") && match(line, /[^ ]/) && substr(line, RSTART, length(program) + 1) == program " "
  left = line
  sub(/^ */, "", left)
  if (usage) left = substr(left, length(program) + 2)
  sub(/   *.*/, "", left)
  if (usage) {
    if (match(left, /^[a-z]+/)) print substr(left, 1, RLENGTH)
    take(left)
  } else if (line ~ /^  ? ? ? ? ?--?[A-Za-z]/) take(left)
  else if (line ~ /^  [a-z]+  /) print left
}
END { print "--help" }
