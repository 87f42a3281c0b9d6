"""Says which characters the tokenizers library takes each class of its regular expressions for: python3 make_classes.py > classes.txt

A line is an expression of one character, how many characters it takes, in how many runs, and FNV-1a (64 bits) of the runs' first and last
characters in hexadecimal, as "41-5A,".
"""
from tokenizers import Regex, pre_tokenizers

text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
names = ["L", "M", "N", "P", "S", "Z", "Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "Pc", "Zs", "Zl", "Zp", "Cc", "White_Space"]
classes = [r"\p{%s}" % n for n in names] + [r"\P{L}", r"\p{^N}", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\h", r"\H", r"\v", "."]
classes += ["[[:%s:]]" % n for n in ["ascii", "blank", "cntrl", "digit", "punct", "space", "xdigit", "word"]]
classes += [r"[^\s\p{L}\p{N}]", r"[\w-]", r"[^\w\s]", r"[^[:punct:]]", r"[\s\d_]", r"[^\r\n\p{L}\p{N}]", r"[\p{L}\p{M}]"]
classes += ["[[:%s:]]" % n for n in ["alpha", "alnum", "upper", "lower", "graph", "print"]]
classes += [r"\p{Alphabetic}", r"\p{Upper}", r"[\W]", r"[\D]", r"[\S]", r"[\H]", "[[:^alpha:]]", "[^[:alpha:]]", r"[^\W]", r"[^\D]"]
scripts = """Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana
  Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan"""
classes += [r"\p{%s}" % n for n in scripts.split()]

for c in classes:
    count = runs = 0
    h = 0xCBF29CE484222325
    for piece, _ in pre_tokenizers.Split(Regex("(?:%s)+" % c), "removed", invert=True).pre_tokenize_str(text):
        run = []
        for x in piece:  # surrogates are no characters: a run goes on behind them
            x = ord(x)
            if run and (x == run[1] + 1 or (run[1] == 0xD7FF and x == 0xE000)):
                run[1] = x
                continue
            assert not run
            run = [x, x]
        count += len(piece)
        runs += 1
        for b in ("%X-%X," % tuple(run)).encode():
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    print("%s %d %d %016x" % (c, count, runs, h), flush=True)
