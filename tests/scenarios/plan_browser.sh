# The page of zplan report in a browser: it draws, in light and in dark; no label lies on another or outside of its
# drawing; and where there is little room, drawings move within their frames and the page does not.
. "$ZUG_SRC/tests/scenarios/lib.sh"

for browser in chromium chromium-browser google-chrome ''; do command -v "$browser" >/dev/null && break; done
[ "$browser" ] || { echo "no Chromium here: the page is not looked at in a browser"; exit 77; }
# look FILE WIDTH OPTION...
look() {
  page=$1 width=$2
  shift 2
  ok timeout 240 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$PWD/profile" \
    --window-size="$width,900" "$@" "file://$PWD/$page"
}
clusters=$ZUG_SRC/examples/clusters.zug
recipes=$ZUG_SRC/examples/recipes.zug
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg
ok zplan report gpt2.zsg --recipe "$recipes:train3d" --with "$recipes:zero3" --cluster "$clusters:laptop" -o plan.html
look plan.html 1040 --screenshot="$PWD/plan.png"
python3 "$ZUG_SRC/tests/scenarios/png.py" plan.png 5 light || fail "the page draws nothing"
look plan.html 1040 --blink-settings=preferredColorScheme=0 --screenshot="$PWD/dark.png"
python3 "$ZUG_SRC/tests/scenarios/png.py" dark.png 5 dark || fail "the page is not dark where everything else is"

# ---- sixteen stages and two hundred collectives ----
ok zc "$ZUG_SRC/examples/llama3.zug" -o 405b.zsg -D layers=126 -D heads=128 -D width=16384 -D inner=53248
ok zplan report 405b.zsg --recipe "$ZUG_SRC/examples/published.zug:llama405b" --cluster "$clusters:h100" -o large.html
measure='<script>
const wrong = [], all = [];
for (const svg of document.querySelectorAll("svg")) {
  const room = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(t => [svg.id + ": " + t.textContent, t.getBoundingClientRect()]);
  for (const [what, r] of texts) {
    all.push(what);
    if (r.left < room.left - 1 || r.right > room.right + 1 || r.top < room.top - 1 || r.bottom > room.bottom + 1)
      wrong.push(what + " is outside");
    for (const [other, o] of texts)
      if (o !== r && r.left < o.right && o.left < r.right && r.top < o.bottom - 2 && o.top < r.bottom - 2)
        wrong.push(what + " lies on " + other);
  }
}
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) wrong.push("the page is wider than the window");
document.body.textContent = "labels " + all.length + " wrong " + wrong.length + " " + wrong.slice(0, 5).join("; ");
</script>'
for name in plan large; do
  { sed 's,</body></html>,,' $name.html && echo "$measure</body></html>"; } >measured.html
  for width in 1040 500; do
    look measured.html $width --dump-dom
    grep -Eq 'labels [1-9][0-9]+ wrong 0 ' out.txt || { grep labels out.txt; fail "$name.html in $width pixels"; }
  done
done

# ---- a part of the timeline: by keys, buttons, the wheel and a drag; labels lie apart there, too, and all of it comes back ----
closer='<script>{
const part = document.querySelector(".zoom"), svg = part.querySelector("svg"), all = svg.innerHTML.trim(), wrong = []
const ticks = () => [...svg.querySelectorAll("line + text")].map(t => t.textContent).join(" ")
const changed = (what, act) => { const before = ticks(); act(); if (ticks() == before) wrong.push(what + " changes nothing") }
const key = key => part.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }))
const at = svg.getBoundingClientRect()
const pointer = (type, x) => svg.dispatchEvent(new PointerEvent(type, { clientX: at.left + x, clientY: at.top + 9, pointerType: "mouse", button: 0 }))
svg.setPointerCapture = () => {}
changed("+", () => key("+"))
changed("an arrow", () => key("ArrowRight"))
changed("a button", () => part.querySelector("button[data-key=\"+\"]").click())
key("0")
if (svg.innerHTML.trim() != all) wrong.push("0 does not show all")
changed("a drag", () => { pointer("pointerdown", 300); pointer("pointermove", 400); pointer("pointerup", 420) })
if (svg.querySelector(".marked")) wrong.push("what was marked stays")
changed("the wheel", () => svg.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, ctrlKey: true, clientX: at.left + 500, cancelable: true })))
const before = ticks()
svg.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, clientX: at.left + 500 }))
if (ticks() != before) wrong.push("the wheel alone does not scroll the page")
window.lost = wrong
}</script>'
for name in plan large; do
  { sed 's,</body></html>,,' $name.html && echo "$closer$measure" | sed 's/const wrong = \[\], all/const wrong = window.lost, all/' && echo '</body></html>'; } >measured.html
  look measured.html 1040 --dump-dom
  grep -Eq 'labels [1-9][0-9]+ wrong 0 ' out.txt || { grep labels out.txt | tail -n 1; fail "$name.html, zoomed"; }
done
