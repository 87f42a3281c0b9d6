"""adapters.py BASE CASE MERGED APART: is MERGED what peft's merge_and_unload makes of BASE, and are tensors and config of APART those of CASE?"""
import glob
import json
import math
import struct
import sys
from array import array


def read(path):
    out = {}
    for f in glob.glob(path + "/*.safetensors"):
        text = open(f, "rb").read()
        n = struct.unpack("<Q", text[:8])[0]
        for k, v in json.loads(text[8:8 + n]).items():
            if k != "__metadata__":
                out[k] = (v["dtype"], v["shape"], text[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
    return out


def numbers(t):
    if t[0] == "F32":
        return array("f", t[2])
    assert t[0] == "BF16", t[0]
    halves = array("H", t[2])
    return array("f", b"".join(struct.pack("<I", h << 16) for h in halves))


def main(base, case, merged, apart):
    before, after = read(base), read(merged)
    wanted = {n: (float(s), float(c)) for n, s, c in (x.split() for x in open(case + "/merged"))}
    bad = []
    for n, t in after.items():
        w = numbers(t)
        if n not in wanted:
            if n in before and numbers(before[n]) != w:
                bad.append("%s has changed" % n)
            continue
        s, c = sum(w), sum(x * math.cos(i) for i, x in enumerate(w))
        if abs(s - wanted[n][0]) > 2e-4 or abs(c - wanted[n][1]) > 2e-4:
            bad.append("%s: sums %.9g %.9g, of peft %.9g %.9g" % (n, s, c, *wanted[n]))
    bad += ["%s is missing" % n for n in wanted if n not in after]
    own, given = read(apart), read(case)
    bad += ["tensors of the adapter: %s" % sorted(set(own) ^ set(given))] if set(own) != set(given) else []
    bad += ["%s is not what was read" % n for n in own if n in given and own[n] != given[n]]
    a, b = (json.load(open(x + "/adapter_config.json")) for x in (apart, case))
    for k in ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "peft_type", "bias", "fan_in_fan_out", "task_type", "use_dora"):
        if a.get(k) != b.get(k):
            bad.append("the config says %s = %s, and had %s" % (k, a.get(k), b.get(k)))
    if sorted(a["target_modules"]) != sorted(b["target_modules"]):
        bad.append("the config has modules %s, and had %s" % (a["target_modules"], b["target_modules"]))
    print("\n".join(bad) if bad else "%d merged tensors, %d of the adapter" % (len(wanted), len(own)))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main(*sys.argv[1:])
