# Holds what cuobjdump says of kernels against a table: awk -f machine_code.awk -v arch=sm_90a [-v stated=1] TABLE RESOURCES SASS
# stated: the code is by the release of the toolkit for which registers and stack are stated; with others they are not held
# against the table. A line of the table (# begins a comment):
#
#   NAME  REGISTERS  LOADS STORES  F64  STACK
#
# NAME: an expression for all of the kernel's name with its template's parameters, as in tiles<8>; the first line that
# matches counts. REGISTERS: at most. LOADS, STORES: instructions for 16 bytes of global memory, at least; with ! no other
# than these. F64: whether there is arithmetic in it (yes, no). STACK: bytes at most, 0 where nothing excuses it.
# Prints what is wrong; with -v list=1 the table of what there is instead.

# _Z11reduce_rowsILi256ELin1ELb1EEv6Reduce to reduce_rows<256,-1,1>
function plain(name,   n, s, args, one) {
  if (!match(name, /^_Z[0-9]+/)) return name
  n = substr(name, 3, RLENGTH - 2) + 0
  s = substr(name, RLENGTH + 1, n)
  name = substr(name, RLENGTH + 1 + n)
  if (substr(name, 1, 1) != "I") return s
  while (match(name, /L[ib]n?[0-9]+E/)) {
    one = substr(name, RSTART + 2, RLENGTH - 3)
    sub(/^n/, "-", one)
    args = args (args == "" ? "" : ",") one
    name = substr(name, RSTART + RLENGTH)
  }
  return s "<" args ">"
}
function wrong(kernel, text) {
  printf "%s, %s: %s\n", arch, kernel, text
  bad = 1
}

FILENAME == ARGV[1] {
  sub(/#.*/, "")
  if (NF == 0) next
  if (NF != 6) { print "not six words: " $0; bad = 1; next }
  lines++
  for (i = 1; i <= 6; i++) want[lines, i] = $i
  next
}

FILENAME == ARGV[2] && /arch = |code for / { here = $NF == arch }
FILENAME == ARGV[2] && /^ *Function .*:/ { name = $2; sub(/:.*/, "", name); name = plain(name) }
FILENAME == ARGV[2] && here && /REG:/ {
  if (!(name in registers)) order[++kernels] = name
  match($0, /REG:[0-9]+/); registers[name] = substr($0, RSTART + 4, RLENGTH - 4) + 0
  match($0, /STACK:[0-9]+/); stack[name] = substr($0, RSTART + 6, RLENGTH - 6) + 0
}

FILENAME == ARGV[3] && /Function : / { name = plain($NF) }
FILENAME == ARGV[3] && /(LDG|STG|LDL|STL|[ \t]D(ADD|MUL|FMA|SETP))/ {
  op = $0
  sub(/^[ \t]*\/\*[0-9a-f]*\*\/[ \t]*/, "", op)
  sub(/^@!?U?P[0-9T]+ /, "", op)
  sub(/[ ;].*/, "", op)
  if (op ~ /^LDG.*\.128/) loads[name]++
  else if (op ~ /^LDG/) small_loads[name]++
  else if (op ~ /^STG.*\.128/) stores[name]++
  else if (op ~ /^STG/) small_stores[name]++
  else if (op ~ /^(LDL|STL)/) local[name]++
  else if (op ~ /^D(ADD|MUL|FMA|SETP)/) doubles[name]++
}

function least(kernel, what, there, others, bound) {
  if (bound ~ /!$/ && others > 0) wrong(kernel, others " " what " of less than 16 bytes")
  sub(/!$/, "", bound)
  if (there < bound + 0) wrong(kernel, there + 0 " " what " of 16 bytes, not " bound)
}

END {
  if (!kernels) { print "no kernels for " arch; exit 1 }
  for (k = 1; k <= kernels; k++) {
    name = order[k]
    if (list) {
      printf "%-26s %4d  %3d %3d  %3d %3d  %4d  %d %d\n", name, registers[name], loads[name], stores[name], small_loads[name],
        small_stores[name], doubles[name], stack[name], local[name]
      continue
    }
    for (i = 1; i <= lines && !match(name, "^(" want[i, 1] ")$"); i++);
    if (i > lines) { wrong(name, "not in the table"); continue }
    used[i] = 1
    least(name, "loads", loads[name], small_loads[name], want[i, 3])
    least(name, "stores", stores[name], small_stores[name], want[i, 4])
    if (want[i, 5] == "no" && doubles[name]) wrong(name, doubles[name] " instructions of f64 arithmetic")
    if (want[i, 5] == "yes" && !doubles[name]) wrong(name, "no f64 arithmetic")
    if (!stated) continue
    if (registers[name] > want[i, 2]) wrong(name, registers[name] " registers, more than " want[i, 2])
    if (stack[name] > want[i, 6]) wrong(name, stack[name] " bytes of stack: spills, or an array whose index is not known")
    if (!want[i, 6] && local[name]) wrong(name, local[name] " accesses to local memory")
  }
  for (i = 1; i <= lines && !list; i++)
    if (!used[i]) wrong(want[i, 1], "in the table, but there is no such kernel")
  exit bad
}
