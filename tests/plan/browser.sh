# The page of zplan report in a browser: it draws, and in the colours that it has.
. "$ZUG_SRC/tests/lib.sh"

for browser in chromium chromium-browser google-chrome ''; do command -v "$browser" >/dev/null && break; done
[ "$browser" ] || { echo "no Chromium here: the page is not looked at in a browser"; exit 77; }
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg
ok zplan report gpt2.zsg --recipe "$ZUG_SRC/examples/recipes.zug:train3d" --cluster "$ZUG_SRC/examples/clusters.zug:laptop" -o plan.html
ok timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --window-size=1040,900 \
  --screenshot="$PWD/plan.png" "file://$PWD/plan.html"
python3 "$ZUG_SRC/tests/plan/png.py" plan.png 5 || fail "the page draws nothing"
