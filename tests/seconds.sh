# Notes how long a test took: read by tests/run-unit and tests/run-scenario. `./bootstrap check` prints the slowest.
# note_seconds NAME START: appends "SECONDS CPU-SECONDS NAME" to tests/seconds of the build folder. START was `date +%s.%N`.
note_seconds() {
  noted=${ZUG_BUILD:-.}/tests/seconds.$$
  times >"$noted" # of the shell, then of its children; a pipe would make a new shell
  awk -v name="$1" -v from="$2" -v to="$(date +%s.%N)" '
    NR == 2 { split($0, t, /[ms ]+/); cpu = t[1] * 60 + t[2] + t[3] * 60 + t[4] }
    END { printf "%.1f %.1f %s\n", to - from, cpu, name }' "$noted" >>"${ZUG_BUILD:-.}/tests/seconds"
  rm -f "$noted"
}
