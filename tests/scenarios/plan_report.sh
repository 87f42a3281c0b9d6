# zplan report: one page that loads nothing, and draws each kind of drawing of each plan, all of it inside.
. "$ZUG_SRC/tests/scenarios/lib.sh"

clusters=$ZUG_SRC/examples/clusters.zug
recipes=$ZUG_SRC/examples/recipes.zug
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg
ok zplan report gpt2.zsg --recipe "$recipes:train3d" --with "$recipes:zero3" --cluster "$clusters:laptop" -o plan.html
ok zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop" -o plan.html # its own it may replace
cp plan.html one.html
ok zplan report gpt2.zsg --recipe "$recipes:train3d" --with "$recipes:zero3" --cluster "$clusters:laptop" -o plan.html
for page in one plan; do
  [ "$(grep -c '<script' $page.html)" -eq 1 ] || fail "$page.html has other scripts than its own"
  ! grep -Eiq 'src=|href=|<link|<img|<iframe|http' $page.html || fail "$page.html loads something"
done

# ---- the timeline alone, as a picture ----
cat >two.zug <<'END2'
recipe two { mesh pipe = 2 stages over pipe by cost schedule interleaved bind batch = 8, seq = 64 micro 2 optimizer adamw(lr = 1e-3) }
recipe flat from two { schedule gpipe }
END2
ok zplan report gpt2.zsg --recipe two.zug:flat --cluster "$clusters:laptop" -o flat.svg
ok zplan report gpt2.zsg --recipe two.zug:flat --cluster "$clusters:laptop" -o flat.svg # again, the same
[ "$(grep -c '<rect class="s0".*>forward of micro-batch [0-3],' flat.svg)" -eq 8 ] || fail "not a box for each pass forward"
[ "$(grep -c '<rect class="s1".*>backward of micro-batch [0-3],' flat.svg)" -eq 8 ] || fail "not a box for each pass backward"
[ "$(grep -c '>stage [01]</text>' flat.svg)" -eq 2 ] && grep -q '>flat</tspan>: GPT2 on 2 ranks of laptop, a step takes [0-9.]* m*s<' flat.svg ||
  fail "not a row for each stage, or not what it is of"
grep -q 'prefers-color-scheme:dark' flat.svg && ! grep -Eiq 'script|href|url\(' flat.svg || fail "no colours for the dark, or something loaded"
# Ticks stand at 1, 2 or 5 x 10^n of a unit, ascending, and the last is within the step.
sed -n 's/^<text class="word".*>\([0-9.]*\) \(m*s\|us\)<.*/\1/p' flat.svg | awk 'NR == 1 { step = $1; lead = step; while (lead >= 10) lead /= 10; while (lead < 1) lead *= 10
  lead = sprintf("%.6g", lead); bad = lead != 1 && lead != 2 && lead != 5 } ($1 - NR * step) ^ 2 > 1e-9 * step * step { bad = 1 }
  END { exit bad || NR < 3 || NR > 7 }' || { grep 'class="word"' flat.svg; fail "no round ticks"; }
ok zplan report gpt2.zsg --recipe two.zug:flat --with two.zug:two --cluster "$clusters:laptop" -o both.svg
[ "$(grep -c '>stage [01]</text>' both.svg)" -eq 4 ] && [ "$(grep -c ' a step takes ' both.svg)" -eq 2 ] || fail "not both plans"
if command -v xmllint >/dev/null; then ok xmllint --noout flat.svg both.svg; fi
refuses 'one.svg exists and is not an SVG picture' sh -c 'cp one.html one.svg; zplan report gpt2.zsg --recipe two.zug:flat --cluster "$0:laptop" -o one.svg' "$clusters"
grep -q '<!DOCTYPE html>' one.svg || fail "a page is lost"
refuses 'zplan report needs -o FILE' zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop"
refuses 'takes no option --with; it belongs to report' zplan show gpt2.zsg --recipe "$recipes:single" --with "$recipes:ddp"
echo mine >mine.html
refuses 'mine.html exists and is not a page' zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop" -o mine.html

# ---- what it draws, of which its script makes HTML and SVG ----
command -v node >/dev/null || { echo "no node: what the page draws is not looked at"; exit 0; }
cat >draw.js <<'END'
const page = require("fs").readFileSync(process.argv[2], "utf8")
const [, script] = /<script>([^]*)<\/script>/.exec(page), drawn = {}
globalThis.document = { getElementById: () => drawn, querySelectorAll: () => [] }
const { ticks, within, pressed, boxes } = new Function(script + "\nreturn { ticks, within, pressed, boxes }")()
process.stdout.write(drawn.innerHTML)

// ---- what zooms: ticks are round wherever one looks, a view stays in the step, and boxes in the drawing ----
const { data } = new Function(script + "\nreturn { data }")(), assert = require("assert")
for (const wide of [3e-7, 1.7e-5, 4.2e-3, .0999, 1, 7.3, 123]) for (const from of [0, .3 * wide, 40 * wide]) {
  const list = ticks([from, from + wide]), times = list.map(([t]) => t), words = list.map(([, w]) => w)
  const step = times[1] - times[0], lead = Number((step / 10 ** Math.floor(Math.log10(step) + 1e-9)).toPrecision(6))
  assert([1, 2, 5].includes(lead) && list.length >= 2 && list.length <= 8, `${list}`)
  assert(new Set(words).size == words.length && words.every(w => w == "0" || /^[0-9.]+ (us|ms|s)$/.test(w)), `${list}`)
  for (const [t, w] of list) {
    const said = w == "0" ? 0 : parseFloat(w) * { us: 1e-6, ms: 1e-3, s: 1 }[w.split(" ")[1]]
    assert(Math.abs(said - t) < 1e-6 * step + 1e-12 * t && t >= from - 1e-6 * step && t <= from + wide + 1e-6 * step, `${t} is ${w}`)
  }
}
for (const p of data.plans) {
  const all = p.sim.seconds, near = (a, b) => a.forEach((x, i) => assert(Math.abs(x - b[i]) < 1e-9 * all, `${a} and not ${b}`))
  near(within(p, [-1, -.5].map(x => x * all)), [0, .5 * all])
  near(within(p, [.9 * all, 1.1 * all]), [.8 * all, all])
  near(within(p, [0, 9 * all]), [0, all])
  near(pressed(p, [0, all], "+"), [.25 * all, .75 * all])
  near(pressed(p, [.25 * all, .75 * all], "-"), [0, all])
  near(pressed(p, [.2 * all, .4 * all], "ArrowRight"), [.25 * all, .45 * all])
  near(pressed(p, [.2 * all, .4 * all], "0"), [0, all])
  assert(pressed(p, [0, all], "x") === null)
  for (const m of boxes(p, [.4 * all, .5 * all]).matchAll(/<rect x="([^"]*)" y="[^"]*" width="([^"]*)"/g))
    assert(+m[1] >= 75.9 && +m[1] + +m[2] <= 960.5, m[0])
}
END
cat >check.py <<'END'
import html.parser, json, re, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.boxes, self.size, self.svg, self.text = [], {}, {}, None, ''
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert tag not in ('script', 'link', 'img', 'iframe') and 'src' not in a and 'href' not in a, tag
        if tag == 'svg':
            self.svg = a['id']
            self.size[self.svg] = [float(x) for x in a['viewbox'].split()]
            self.boxes[self.svg] = []
        if tag == 'rect': self.boxes[self.svg].append([float(a[k]) for k in ('x', 'y', 'width', 'height')] + [a['fill']])
        if tag not in ('td', 'th', 'line'): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): assert tag == 'line', tag
    def handle_endtag(self, tag): assert self.open.pop() == tag, tag
    def handle_data(self, data): self.text += data
p = Page()
text = open(sys.argv[1]).read()
p.feed(text)
plans = int(sys.argv[2])
assert not p.open, p.open
drawings = {k + str(i) for k in ('parts', 'timeline', 'ledger', 'memory', 'cut') for i in range(plans)}
drawings |= {'sent' + str(i) for i in range(plans) if plans > 1} # one rank sends nothing
assert set(p.boxes) == drawings, set(p.boxes)
for name, boxes in p.boxes.items():
    _, _, wide, tall = p.size[name]
    assert len(boxes) >= 2 and len({b[4] for b in boxes}) >= 2, (name, len(boxes))
    for x, y, w, h, _ in boxes:
        assert 0 <= x and x + w <= wide + 1 and -1 <= y and y + h <= tall + 1 and w > 0 and h > 0, (name, x, y, w, h)
for wrong in ('NaN', 'undefined', 'null', 'Infinity'): assert wrong not in text, wrong
assert ('Compared' in text) == (plans > 1)
if plans > 1: # the rows of both plans, and what they differ in
    sims = [json.load(open(f)) for f in sys.argv[3:]]
    rows = re.search('<table id="compared">(.*?)</table>', text, re.S)[1].split('</tr>')
    cells = {r.split('<td>')[1]: r.split('<td>')[2:] for r in rows if '<td>' in r}
    unit = {'us': 1e-6, 'ms': 1e-3, 's': 1}
    seconds = lambda said: float(said.split()[0]) * unit[said.split()[1]]
    near = lambda said, x: abs(seconds(said) - x) <= 6e-4 * abs(x)
    assert near(cells['step'][0], sims[0]['seconds']) and near(cells['step'][1], sims[1]['seconds']), cells
    assert cells['step'][2] == '%+.1f %%' % (100 * (sims[1]['seconds'] / sims[0]['seconds'] - 1)), cells
    for part, x in sims[0]['parts'].items():
        y = sims[1]['parts'][part]
        assert near(cells[part][0], x) and near(cells[part][1], y) and near(cells[part][2], y - x), (part, cells[part])
    assert re.fullmatch(r'[+-][0-9.]+ %', cells['memory of the fullest rank'][2]), cells
END
for recipe in train3d zero3; do
  ok zplan sim gpt2.zsg --recipe "$recipes:$recipe" --cluster "$clusters:laptop" --json
  cp out.txt $recipe.json
done
node draw.js one.html >one.drawn && python3 check.py one.drawn 1 || fail "one plan"
node draw.js plan.html >plan.drawn && python3 check.py plan.drawn 2 train3d.json zero3.json || fail "two plans"
grep -q '<b>[0-9.]* m\?s</b>' plan.drawn || fail "no time"
grep -q 'forward of micro-batch 0' plan.drawn && grep -q 'backward of micro-batch 1' plan.drawn || fail "no micro-batches"
grep -q '<td>all_reduce<td>\|<td>reduce_scatter<td>' plan.drawn || fail "no collectives"
ok zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop" -o plan.html --exact
node draw.js plan.html | grep -q '[0-9]\{7,\} B<' || fail "no exact bytes"
# Ranks with two virtual stages pass each micro-batch twice.
ok zplan report gpt2.zsg --recipe two.zug:two --cluster "$clusters:laptop" -o plan.html
node draw.js plan.html | grep -q '; 4 micro-batches;' || fail "other micro-batches than there are"
