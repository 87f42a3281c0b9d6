"""Recipes drawn at random, which must train as one rank does, or be refused by a code that says why.

    random_layouts.py SEED N RANKS AXES [SPLITS]

writes N recipes x0, x1, ... to the standard output, each for at most RANKS ranks; the comment behind a name says for how
many. AXES: what dims may split, with commas, and `stages` if there are layers to cut between; SPLITS: lists that go together, such as `batch, expert`, with semicolons.
"""
import random
import sys

ZERO = ["states", "grads, states", "params, grads, states"]


def mesh(draw, ranks):
    sizes = []
    while ranks >= 2 and len(sizes) < 3 and (not sizes or draw.random() < 0.6):
        sizes.append(draw.choice([s for s in (2, 2, 4) if s <= ranks]))
        ranks //= sizes[-1]
    return sizes


def split(draw, axes, together):
    if together and draw.random() < 0.5:
        return draw.choice(together)
    listed = draw.sample(axes, draw.randint(1, min(6, len(axes))))
    if len(listed) == 1 or draw.random() < 0.7:
        return ", ".join(listed)
    cut = draw.randint(1, len(listed) - 1)
    return ", ".join(listed[:cut]) + " else " + ", ".join(listed[cut:])


def recipe(draw, name, ranks, axes, together):
    staged = "stages" in axes
    axes = [a for a in axes if a != "stages"]
    sizes = mesh(draw, ranks)
    count = 1
    for size in sizes:
        count *= size
    words = [f"recipe {name} from base {{", "mesh " + ", ".join(f"d{i} = {s}" for i, s in enumerate(sizes)),
             f"micro {draw.choice([1, 2])}", draw.choice(["", "", "attention gather", "attention heads", "attention ring"])]
    first = 0
    if staged and len(sizes) > 1 and draw.random() < 0.3:
        words.append("stages over d0 by cost   schedule 1f1b")
        first = 1
    for i in range(first, len(sizes)):
        if draw.random() < 0.9:
            text = split(draw, axes, together)
            kept, _, otherwise = text.partition(" else ")
            order = draw.choice(["", "", " zigzag", " contiguous"]) if "seq" in text else ""
            words.append(f"split {kept} over d{i}" + (f" else {otherwise}" if otherwise else "") + order)
        if draw.random() < 0.3:
            words.append(f"shard {draw.choice(ZERO)} over d{i}")
    return "   ".join(w for w in words if w) + f" }} # {count}"


def main(seed, n, ranks, axes, together=""):
    draw = random.Random(int(seed))
    lists = [t.strip() for t in together.split(";") if t.strip()]
    for i in range(int(n)):
        print(recipe(draw, f"x{i}", int(ranks), axes.split(","), lists))


if __name__ == "__main__":
    main(*sys.argv[1:])
