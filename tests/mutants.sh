# `make mutants` at work on a room of one function and one test: what is caught, what survives, what is not counted.
. "$ZUG_SRC/tests/lib.sh"
[ -x "$ZUG_BUILD/tests/mutants/mutate" ] || { echo "not built"; exit 77; }
cc=$(sed -n 's/^CC = //p' "$ZUG_BUILD/Makefile")
mkdir -p src/room src/test src/tests/mutants build asan
cp "$ZUG_SRC/tests/mutants/record.sh" .
cat >src/room/sample.c <<'END_OF_FILE'
enum Way { UP, DOWN };
#define LIMIT 9 /* 1 + 1 */
static const char *const text[] = {"0 < 1", "true"}; // a < b
int within(int n, enum Way way) {
  int more = 5;
  more = more;
  if (way == DOWN && n > 0) n = -n;
  __asm__ volatile("" : : "r"(n + 1));
  return n < LIMIT ? n : LIMIT;
}
const char *said(int way) { return text[way]; }
int last(const int *x, int n) { return x[n - 1]; }
int only_in_test(void);
int (*const pointer)(void) = only_in_test;
END_OF_FILE
# A program that takes something else of the same library, and could not be linked with the room's file.
echo 'int more(void) { return 0; }' >src/test/more.c
echo 'int more(void); int main(void) { return more(); }' >src/test/less.c
cat >src/test/test.c <<'END_OF_FILE'
#include <stdio.h>
#include <stdlib.h>
int within(int n, int way);
int last(const int *x, int n);
int only_in_test(void) { return 1; }
int main(void) {
  int *x = calloc(3, sizeof *x);
  x[1] = 1;
  int zero = last(x, 3); /* as what lies behind it is, too */
  free(x);
  if (!zero && within(20, 0) == 9 && within(3, 0) == 3 && within(4, 1) == -4 && within(-4, 1) == -4) return 0;
  printf("[FAIL] sample::within: (0.00s)\n");
  return 1;
}
END_OF_FILE
# a_build BUILD FLAGS
a_build() {
  cat >"$1/Makefile" <<END_OF_FILE
CC = sh ../record.sh ../$1-commands $cc $2 -I../src
test/test: test/test.o libroom.a
	\$(CC) -o \$@ test/test.o libroom.a
test/less: test/less.o libroom.a
	\$(CC) -o \$@ test/less.o libroom.a
libroom.a: room/sample.o test/more.o
	sh ../record.sh ../$1-commands ar crD \$@ room/sample.o test/more.o
room/%.o: ../src/room/%.c
	mkdir -p room && \$(CC) -O1 -c -o \$@ $<
test/%.o: ../src/test/%.c
	mkdir -p test && \$(CC) -O1 -c -o \$@ $<
END_OF_FILE
}
a_build build
a_build asan "-fsanitize=address,undefined -fno-sanitize-recover=all"
printf 'room\n  test/test\n  test/less\n' >src/tests/mutants/rooms.txt
cat >src/tests/mutants/known.txt <<'END_OF_FILE'
# As in tests/mutants/known.txt.
room/sample.c: return n {< -> <=} LIMIT ? n : LIMIT;
  Either is LIMIT.
roo*.c: __asm__ volatile(...
  Nobody asks for it.
END_OF_FILE

cat >run <<'END_OF_FILE'
exec sh "$ZUG_SRC/tests/mutants/run.sh" "$(pwd)" "$ZUG_BUILD/tests/mutants/mutate" "$@" 2
END_OF_FILE
ok sh run room 100 1 60
says '^caught    room/sample.c:2  #define LIMIT .9 -> 10. /\* 1 . 1 \*/  .test sample::within.$'
says '^caught    room/sample.c:7  if \{\( -> \(!\(\}way == DOWN && n > 0\) n = -n;'
says '^caught    room/sample.c:7  .*way == \{DOWN -> UP\}'
says '^caught    room/sample.c:7  .*\{n = -n; -> deleted\}'
says '^caught    room/sample.c:12  .*x\[n - \{1 -> 0\}\].*with sanitizers: test, heap-buffer-overflow'
says '^survived  room/sample.c:7  .*n \{> -> >=\} 0'
says "of room, seed 1: .* caught, .*\(not counted: 2 refused, 2 the same code, 4 known to change nothing\)"
grep -q 'sample.c:[35]' out.txt && { cat out.txt; fail "text and a value that nobody reads count"; }
tail -n 1 out.txt | grep -q '^  room/sample.c:7 ' || { cat out.txt; fail "no list of survivors at the end"; }
grep -E '^(caught|survived) ' out.txt | sort >first

# The same seed draws the same; a score that is too low is a failure, and so is a room that is not there.
ok sh run room 3 7 0
grep -E '^(caught|survived) ' out.txt | sort >second
ok sh run room 3 7 0
grep -E '^(caught|survived) ' out.txt | sort | cmp second - || fail "seed 7 draws anew"
[ "$(comm -12 first second | wc -l)" = 3 ] || fail "three of all"
refuses 'survived:' sh run room 100 1 100
refuses "no room 'rom'.*there are: room" sh run rom 1 1 0
# Scenarios judge as programs do, without sanitizers: some of one program, and the first reads all the input that it has.
cp "$ZUG_SRC/tests/run-mpi" src/tests/
echo 'cat >/dev/null' >src/test/reads.sh
echo '"$ZUG_BUILD/test/test"' >src/test/runs.sh
printf 'room\n  test/reads.sh test/test\n  test/runs.sh test/test\n' >src/tests/mutants/rooms.txt
ok sh run room 100 1 60
grep -E '^(caught|survived) ' out.txt | grep -v sample.c:12 | sed 's/ *(test[^(]*$//; s/ *(runs[^(]*$//' | sort >scenarios
grep -v sample.c:12 first | sed 's/ *(test[^(]*$//' | sort | cmp scenarios - || { cat out.txt; fail "scenarios judge otherwise"; }

sed -i 's/20, 0) == 9/20, 0) == 8/' src/test/test.c
refuses 'fails without any change' sh run room 1 1 0

# What is known to change nothing is still there: a line that was edited says nothing of what is there now.
awk '/^[^ #]/ {
  file = substr($0, 1, index($0, ": ") - 1)
  line = substr($0, length(file) + 3)
  if (sub(/\.\.\.$/, "", line)) {
    found = 0
    find = "find \"'"$ZUG_SRC"'\" -path \"'"$ZUG_SRC"'/" file "\" -exec cat {} +"
    while ((find | getline text) > 0) { gsub(/^[ \t]+/, "", text); if (index(text, line) == 1) found = 1 }
    close(find)
    if (!found) print "not in " file ": " line
    next
  }
  if (!match(line, /\{[^{}]* -> [^{}]*\}/) && !match(line, /\{.* -> .*\}/)) { print "no change in: " $0; next }
  was = substr(line, RSTART + 1, RLENGTH - 2)
  line = substr(line, 1, RSTART - 1) substr(was, 1, index(was, " -> ") - 1) substr(line, RSTART + RLENGTH)
  found = 0
  path = "'"$ZUG_SRC"'/" file
  while ((getline text <path) > 0) { gsub(/^[ \t]+|[ \t]+$/, "", text); if (text == line) found = 1 }
  close(path)
  if (!found) print "not in " file ": " line
}' "$ZUG_SRC/tests/mutants/known.txt" >stale
[ -s stale ] && { cat stale; fail "tests/mutants/known.txt is of older code"; }
exit 0
