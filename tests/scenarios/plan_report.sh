# zplan report: one page that needs nothing else, with a drawing of each kind of each plan, all of it inside.
. "$ZUG_SRC/tests/scenarios/lib.sh"

clusters=$ZUG_SRC/examples/clusters.zug
recipes=$ZUG_SRC/examples/recipes.zug
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg
ok zplan report gpt2.zsg --recipe "$recipes:train3d" --with "$recipes:zero3" --cluster "$clusters:laptop" -o plan.html
ok zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop" -o plan.html # its own it may replace
cp plan.html one.html
ok zplan report gpt2.zsg --recipe "$recipes:train3d" --with "$recipes:zero3" --cluster "$clusters:laptop" -o plan.html
cat >check.py <<'END'
import html.parser, re, sys
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
        if tag not in ('meta', 'td', 'th'): self.open.append(tag)
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
assert 'http' not in text.lower() and 'NaN' not in text and 'inf' not in re.sub('infer', '', p.text)
assert ('Compared' in text) == (plans > 1)
END
python3 check.py one.html 1 || fail "one plan"
python3 check.py plan.html 2 || fail "two plans"
grep -q '<b>[0-9.]* m\?s</b>' plan.html || fail "no time"
grep -q 'forward of micro-batch 0' plan.html && grep -q 'backward of micro-batch 1' plan.html || fail "no micro-batches"
grep -q '<td>all_reduce<td>\|<td>reduce_scatter<td>' plan.html || fail "no collectives"
refuses 'zplan report needs -o FILE' zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop"
refuses 'takes no option --with; it belongs to report' zplan show gpt2.zsg --recipe "$recipes:single" --with "$recipes:ddp"
echo mine >mine.html
refuses 'mine.html exists and is not a page' zplan report gpt2.zsg --recipe "$recipes:single" --cluster "$clusters:laptop" -o mine.html
