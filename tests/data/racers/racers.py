#!/usr/bin/env python3
"""Writes racers.expect: what optimizers make of matrices in 20 steps, by the code of their papers and of PyTorch.

All of them at once, a matrix w[4, 6] each, w = 0 at first; of samples x[4], target x t, where t[a, b] =
sin(3 a + 5 b^2 + number of the matrix): loss = sum over b of (x w - x t)^2, mean over the 8 samples of a step. Each is worked out in f64, and again in f32,
which is how far that code's own f32 is off. A line: name, the largest difference of f32, then w in f64.

Needs numpy; `python3 racers.py > racers.expect`.
"""
import numpy as np

A, B, BATCH, STEPS = 4, 6, 8, 20


def sample(s):
    return [float(np.float32(((A * s + i) ** 2 * 7919 + 13 * i) % 1009 / 504.5 - 1)) for i in range(A)]


def adamw(t, p, g, s, lr, b1=0.9, b2=0.95, eps=1e-8, decay=0.0):
    """torch.optim.AdamW, _single_tensor_adam."""
    m, v = s.setdefault("m", 0 * p), s.setdefault("v", 0 * p)
    p = p * t(1 - lr * decay)
    m = m + (g - m) * t(1 - b1)
    v = v * t(b2) + t(1 - b2) * g * g
    s["m"], s["v"], n = m, v, s.setdefault("n", 0) + 1
    s["n"] = n
    denom = np.sqrt(v) / t((1 - b2**n) ** 0.5) + t(eps)
    return p - t(lr / (1 - b1**n)) * m / denom


def sgd(t, p, g, s, lr, momentum, nesterov=False, average=False, decay=0.0):
    """torch.optim.SGD, with decoupled decay; `average`: dampening = momentum from the first step on."""
    m = s.get("m", 0 * p) * t(momentum) + t(1 - momentum if average else 1) * g
    s["m"] = m
    step = t(1 - momentum if average else 1) * g + t(momentum) * m if nesterov else m
    return p * t(1 - lr * decay) - t(lr) * step


def lion(t, p, g, s, lr, b1=0.9, b2=0.99, decay=0.0):
    """Chen et al. 2023, program 1."""
    m = s.get("m", 0 * p)
    p = p * t(1 - lr * decay) - t(lr) * np.sign(m * t(b1) + g * t(1 - b1))
    s["m"] = m * t(b2) + g * t(1 - b2)
    return p


def adagrad(t, p, g, s, lr, eps=1e-10):
    """torch.optim.Adagrad."""
    s["v"] = s.get("v", 0 * p) + g * g
    return p - t(lr) * g / (np.sqrt(s["v"]) + t(eps))


def schedule_free(t, p, g, s, lr, warmup, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    """schedulefree 1.4, AdamWScheduleFree.step, of parameters that are evaluated afterwards: p is y but for the last."""
    n = s["n"] = s.get("n", 0) + 1
    z, v, rate = s.get("z", p), s.get("v", 0 * p), lr * min(n / warmup, 1)
    s["most"] = max(rate, s.get("most", 0))
    s["sum"] = s.get("sum", 0) + s["most"] ** 2
    share = s["most"] ** 2 / s["sum"]
    v = v * t(b2) + t(1 - b2) * g * g
    d = g / (np.sqrt(v / t(1 - b2**n)) + t(eps)) + t(decay) * p
    p = p + (z - p) * t(share) + d * t(rate * (b1 * (1 - share) - 1))
    s["z"], s["v"] = z - t(rate) * d, v
    return p


def at_x(t, y, s, b1=0.9, **_):
    """eval(): x of y."""
    return y + (s["z"] - y) * t(1 - 1 / b1)


JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
POLAR = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]


def norm(x):
    return np.sqrt(np.sum(x * x))


def normuon(t, x, s, b2, axis):
    """Second moments along an axis of what is orthogonalised, and the norm as it was: normuon_update of the authors of arXiv
    2510.05491 (axis 1: of rows), and muon_step_fused of nanochat (rows or columns, whichever are more)."""
    mean = np.mean(x * x, axis=axis, keepdims=True)
    v = s["second"] = s.get("second", 0 * mean) * t(b2) + t(1 - b2) * mean
    y = x / np.sqrt(np.maximum(v, t(1e-10)))
    return y * (norm(x) / norm(y))


def muon(t, p, g, s, lr, momentum=0.95, coefficients=JORDAN, factor=1.0, eps=1e-7, average=False, cautious=False,
         decay=0.0, even=False, exact=False, second=None, b2=0.95):
    """Jordan's Muon (modded-nanogpt, zeropower_via_newtonschulz5), with nesterov; w has columns first here. even, exact: row
    equilibration and renormalization of nanochat (muon_step_fused)."""
    m = s.get("m", 0 * p) * t(momentum) + t(1 - momentum if average else 1) * g
    s["m"] = m
    x = (t(1 - momentum if average else 1) * g + t(momentum) * m).T  # rows: what goes out
    tall = x.shape[0] > x.shape[1]
    if even:
        x = x * (norm(x) / t(x.shape[0] ** 0.5) / np.sqrt(np.sum(x * x, axis=1, keepdims=True)))
    x = x.T if tall else x
    x = x / (np.sqrt(np.sum(x * x)) * t(factor) + t(eps))
    for a, b, c in coefficients:
        y = x @ x.T
        x = t(a) * x + (t(b) * y + t(c) * (y @ y)) @ x
    x = x.T if tall else x
    if exact:
        x = x * (t(min(x.shape) ** 0.5) / norm(x))
    if second:
        x = normuon(t, x, s, b2, 1 if second == "rows" or x.shape[0] >= x.shape[1] else 0)
    step = x.T * t(max(1, B / A) ** 0.5)
    keep = np.where(step * p >= 0, t(1 - lr * decay), t(1)) if cautious else t(1 - lr * decay)
    return p * keep - t(lr) * step


def adafactor(t, p, g, s, lr, decay_rate=0.8, clip=1.0, eps=1e-30, decay=0.0, factored=True, relative=False, least=1e-3):
    """Shazeer and Stern 2018, algorithm 4 with rates of one's own: as transformers' Adafactor with relative_step off, and
    scale_parameter as `relative`, but for decay, which is at the rate as it is (as torch.optim.Adafactor). What is no matrix is not factored."""
    n = s["n"] = s.get("n", 0) + 1
    b2, squares = 1 - n**-decay_rate, g * g + t(eps)
    if factored:
        r = s["r"] = s.get("r", 0) * t(b2) + t(1 - b2) * np.mean(squares, axis=1, keepdims=True)
        c = s["c"] = s.get("c", 0) * t(b2) + t(1 - b2) * np.mean(squares, axis=0, keepdims=True)
        u = g / np.sqrt(r / np.mean(r)) / np.sqrt(c)
    else:
        s["v"] = s.get("v", 0) * t(b2) + t(1 - b2) * squares
        u = g / np.sqrt(s["v"])
    u = u / np.maximum(t(1), np.sqrt(np.mean(u * u)) / t(clip))
    if relative:
        u = u * np.maximum(t(least), np.sqrt(np.mean(p * p)))
    return p * t(1 - lr * decay) - t(lr) * u


def summed(k, rule):
    """Acts in every k-th step, on the sum of gradients."""

    def update(t, p, g, s, **how):
        s["sum"] = s.get("sum", 0 * p) + g
        s["count"] = s.get("count", 0) + 1
        if s["count"] % k:
            return p
        total, s["sum"] = s["sum"], 0 * p
        return rule(t, p, total, s, **how)

    return update


def slope(first, last, over):
    return lambda step: first + (last - first) * min(step / over, 1)


# In the order of the matrices w0, w1, ... of tests/scenarios/racers.sh.
RACERS = [
    ("adamw", adamw, dict(lr=0.01, decay=0.1)),
    ("adamw_every", summed(3, adamw), dict(lr=0.01, b1=0.8, eps=1e-10)),
    ("sgd", sgd, dict(lr=0.01, momentum=slope(0.5, 0.9, 10))),
    ("sgd_nesterov", sgd, dict(lr=0.01, momentum=0.9, nesterov=True)),
    ("sgd_average", sgd, dict(lr=0.05, momentum=0.9, nesterov=True, average=True, decay=slope(1.2, 0, 15))),
    ("lion", lion, dict(lr=0.003, decay=0.1)),
    ("adagrad", adagrad, dict(lr=0.1)),
    ("muon", muon, dict(lr=0.02, decay=1.2)),
    ("muon_polar", muon, dict(lr=0.02, momentum=slope(0.85, 0.95, 8), coefficients=POLAR, factor=1.02, eps=1e-6,
                              average=True, cautious=True, decay=1.2)),
    ("schedule_free", schedule_free, dict(lr=0.03, warmup=5, decay=0.1)),
    ("normuon", muon, dict(lr=0.02, second="rows", average=True, decay=1.2)),
    # At a rate of 0.02 a rounding of one gradient grows a hundredfold in 20 steps, in the code of nanochat too.
    ("nanochat", muon, dict(lr=0.005, momentum=slope(0.85, 0.97, 8), coefficients=POLAR, factor=1.02, eps=1e-6, average=True,
                            cautious=True, even=True, exact=True, second="longer", b2=0.9, decay=0.28)),
    ("adafactor", adafactor, dict(lr=0.05, decay=0.1)),
    ("adafactor_elements", adafactor, dict(lr=0.05, clip=0.8, factored=False)),
    ("adafactor_relative", adafactor, dict(lr=0.3, relative=True, least=0.02, decay_rate=0.6)),
]


def run(t, k, rule, how):
    p, s = np.zeros((A, B), t), {}
    target = np.sin(np.array([[3 * a + 5 * b * b + k for b in range(B)] for a in range(A)], t))
    for step in range(STEPS):
        x = np.array([sample(BATCH * step + i) for i in range(BATCH)], t)
        times = t(2) if rule is adafactor and not how.get("factored", True) else t(1)
        g = times * t(2 / BATCH) * (x.T @ (x @ (times * p) - x @ target))
        now = {key: value(step) if callable(value) else value for key, value in how.items()}
        p = rule(t, p, g, s, **now)
    if rule is schedule_free:
        p = at_x(t, p, s, **how)
    return p.astype(np.float64)


for number, (name, rule, settings) in enumerate(RACERS):
    exact, single = run(np.float64, number, rule, settings), run(np.float32, number, rule, settings)
    print(name, "%.3g" % np.max(np.abs(exact - single)), *("%.10g" % x for x in exact.ravel()))
