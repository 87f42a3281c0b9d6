# The page of zlog plot in a browser: in light and in dark; and with forty runs of long names in a small window, of which the
# axis is in the window, below the names.
. "$ZUG_SRC/tests/scenarios/lib.sh"

for browser in chromium chromium-browser google-chrome ''; do command -v "$browser" >/dev/null && break; done
[ "$browser" ] || { echo "no Chromium here: the page is not looked at in a browser"; exit 77; }
look() { # FILE WIDTH HEIGHT OPTION...
  page=$1 size=$2,$3
  shift 3
  ok timeout 240 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$PWD/profile" \
    --window-size="$size" "$@" "file://$PWD/$page"
}
runs=
for run in $(seq 40); do
  name=run-$run-with-a-name-that-has-no-blank-and-does-not-end-soon
  mkdir $name && runs="$runs $name"
  awk -v r="$run" 'BEGIN { for (s = 1; s <= 50; s++) printf "{\"step\":%d,\"loss\":%.6g}\n", s, 2 + r / 10 + 8 * exp(-s / 20) }' >$name/metrics.jsonl
done
# shellcheck disable=SC2086
ok zlog plot $runs -o runs.html
look runs.html 900 600 --screenshot="$PWD/light.png"
python3 "$ZUG_SRC/tests/scenarios/png.py" light.png 5 light || fail "the page draws nothing"
look runs.html 900 600 --blink-settings=preferredColorScheme=0 --screenshot="$PWD/dark.png"
python3 "$ZUG_SRC/tests/scenarios/png.py" dark.png 5 dark || fail "the page is not dark where everything else is"
measure='<script>{
const at = q => document.querySelector(q).getBoundingClientRect(), wrong = []
const picture = at("body > svg"), names = at("#runs"), labels = [...document.querySelectorAll("body > svg text")].map(t => t.getBoundingClientRect())
if (!labels.length || labels.some(r => r.bottom > innerHeight + 1)) wrong.push("the axis is not in the window")
if (names.bottom > picture.top + 1) wrong.push("names lie on the picture")
if (picture.height < innerHeight / 3) wrong.push("the picture is small")
if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is wider than the window")
document.body.textContent = "labels " + labels.length + " wrong " + wrong.length + " " + wrong.join("; ")
}</script>'
{ sed 's,</html>,,' runs.html && echo "$measure</html>"; } >measured.html
for size in '900 600' '1400 900' '500 700'; do
  # shellcheck disable=SC2086
  look measured.html $size --dump-dom
  grep -Eq 'labels [1-9][0-9]* wrong 0 ' out.txt || { grep labels out.txt | tail -n 1; fail "in a window of $size"; }
done
