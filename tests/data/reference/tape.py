"""Reverse-mode differentiation in f64, in nothing but Python: what zoo.py writes models with.

A Tensor has a shape and its elements, row by row, in one list. Axes are positions, as in PyTorch: there are reshapes and
transposes, and nothing here knows the names of axes. Every operation notes how cotangents go back; Tensor.backward
plays these notes from the last to the first. It is slow (some ten million products a second), and meant for models
of a few thousand parameters.

Four kinds of operations are all there is: moves (`take`: element i of the result is element index[i] of the operand),
which are transposes, slices, broadcasts and lookups; functions of elements; sums along the last axis; and products of
matrices.
"""
import math
from functools import lru_cache
from itertools import product
from operator import add, mul

_notes = []  # (result, function that adds to the operands' gradients), in the order of computation


def count(shape):
    return math.prod(shape)


class Tensor:
    __slots__ = ("shape", "data", "grad")

    def __init__(self, shape, data):
        self.shape, self.data, self.grad = tuple(shape), data, None
        assert len(data) == count(self.shape), (shape, len(data))

    def gain(self, cotangent):
        self.grad = cotangent if self.grad is None else list(map(add, self.grad, cotangent))

    def backward(self):
        """Gradients of this scalar, in `grad` of everything that it was made of. The notes are used up."""
        assert self.shape == ()
        self.grad = [1.0]
        while _notes:
            result, back = _notes.pop()
            if result.grad is not None:
                back(result.grad)
                result.grad = None

    def __add__(self, other):
        return _binary(self, other, lambda a, b: list(map(add, a, b)), lambda g, a, b: (g, g))

    def __mul__(self, other):
        return _binary(self, other, lambda a, b: list(map(mul, a, b)),
                       lambda g, a, b: (list(map(mul, g, b)), list(map(mul, g, a))))

    def __sub__(self, other):
        return self + -other

    def __neg__(self):
        return self * -1.0

    def __truediv__(self, other):
        return self * (1.0 / other if isinstance(other, (int, float)) else power(other, -1.0))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other):
        return -self + other

    def __matmul__(self, other):
        return matmul(self, other)


def scalar(x):
    return Tensor((), [float(x)])


def constant(shape, f):
    """f(i, j, ...) at each place."""
    return Tensor(shape, [float(f(*at)) for at in product(*map(range, shape))])


# ---- moves ---------------------------------------------------------------------------------------
def take(x, shape, index):
    """Element i is x's element index[i]; zero where index[i] is None."""
    r = Tensor(shape, [0.0 if i is None else x.data[i] for i in index])

    def back(g):
        into = [0.0] * len(x.data)
        for i, v in zip(index, g):
            if i is not None:
                into[i] += v
        x.gain(into)
    _notes.append((r, back))
    return r


@lru_cache(None)
def _strides(shape):
    return tuple(count(shape[i + 1:]) for i in range(len(shape)))


@lru_cache(None)
def _walk(shape, strides, start):
    """The places that one comes by with these strides, row by row."""
    places = [start]
    for n, stride in zip(shape, strides):
        places = [p + i * stride for p in places for i in range(n)]
    return places


def reshape(x, *shape):
    r = Tensor(shape, x.data)
    _notes.append((r, x.gain))
    return r


def permute(x, *order):
    """Axis i of the result is axis order[i] of x."""
    strides = _strides(x.shape)
    shape = tuple(x.shape[i] for i in order)
    return take(x, shape, _walk(shape, tuple(strides[i] for i in order), 0))


def transpose(x):
    """The last two axes change places."""
    n = len(x.shape)
    return permute(x, *range(n - 2), n - 1, n - 2)


def expand(x, shape):
    """Repeats x along axes that it lacks in front, or of which it has one element."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    old = (1,) * (len(shape) - len(x.shape)) + x.shape
    strides = tuple(0 if a == 1 else s for a, s in zip(old, _strides(old)))
    assert all(a in (1, b) for a, b in zip(old, shape)), (x.shape, shape)
    return take(x, shape, _walk(shape, strides, 0))


def part(x, axis, start, stop):
    """x[..., start:stop, ...] along an axis."""
    axis %= len(x.shape)
    strides = _strides(x.shape)
    shape = x.shape[:axis] + (stop - start,) + x.shape[axis + 1:]
    return take(x, shape, _walk(shape, strides, start * strides[axis]))


def rows(table, ids):
    """The rows of a table [n, ...] that a list of numbers selects: [len(ids), ...]."""
    size = count(table.shape[1:])
    return take(table, (len(ids),) + table.shape[1:], [i * size + j for i in ids for j in range(size)])


def cat(xs, axis):
    """Tensors joined along an axis."""
    axis %= len(xs[0].shape)
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    total, at = None, 0
    for x in xs:  # each in its place, and zero around it
        where = [None] * count(shape)
        strides = _strides(tuple(shape))
        for i, place in enumerate(_walk(x.shape, strides, at * strides[axis])):
            where[place] = i
        piece = take(x, shape, where)
        total = piece if total is None else total + piece
        at += x.shape[axis]
    return total


# ---- functions of elements -----------------------------------------------------------------------
def _binary(a, b, f, back):
    a, b = (x if isinstance(x, Tensor) else scalar(x) for x in (a, b))
    n = max(len(a.shape), len(b.shape))
    shape = tuple(max(p) for p in zip((1,) * (n - len(a.shape)) + a.shape, (1,) * (n - len(b.shape)) + b.shape))
    a, b = expand(a, shape), expand(b, shape)
    r = Tensor(shape, f(a.data, b.data))

    def go(g):
        for x, part in zip((a, b), back(g, a.data, b.data)):
            x.gain(part)
    _notes.append((r, go))
    return r


def _unary(x, f, slope):
    """f of each element; slope(x, y) is its derivative."""
    r = Tensor(x.shape, list(map(f, x.data)))
    _notes.append((r, lambda g: x.gain([v * slope(a, b) for v, a, b in zip(g, x.data, r.data)])))
    return r


def exp(x):
    return _unary(x, math.exp, lambda a, y: y)


def log(x):
    return _unary(x, math.log, lambda a, y: 1 / a)


def tanh(x):
    return _unary(x, math.tanh, lambda a, y: 1 - y * y)


def erf(x):
    return _unary(x, math.erf, lambda a, y: 2 / math.sqrt(math.pi) * math.exp(-a * a))


def power(x, p):
    return _unary(x, lambda a: a ** p, lambda a, y: p * a ** (p - 1))


def sigmoid(x):
    return _unary(x, lambda a: 1 / (1 + math.exp(-a)), lambda a, y: y * (1 - y))


def relu(x):
    return _unary(x, lambda a: max(a, 0.0), lambda a, y: float(a > 0))


# ---- sums and products ---------------------------------------------------------------------------
def total(x, keep=False):
    """The sum along the last axis."""
    n = x.shape[-1]
    sums = [math.fsum(x.data[i:i + n]) for i in range(0, len(x.data), n)]
    r = Tensor(x.shape[:-1] + ((1,) if keep else ()), sums)
    _notes.append((r, lambda g: x.gain([v for v in g for _ in range(n)])))
    return r


def mean(x, keep=False):
    return total(x, keep) / x.shape[-1]


def _product(a, b, n, k, m):
    """[n, k] by [k, m], lists."""
    columns = [b[j::m] for j in range(m)]
    return [sum(map(mul, a[i:i + k], c)) for i in range(0, n * k, k) for c in columns]


def _flip(a, n, m):
    return [x for j in range(m) for x in a[j::m]]


def matmul(a, b):
    """Matrices in the last two axes; those before are alike, or b has none."""
    if len(b.shape) == 2 and len(a.shape) != 2:
        return reshape(matmul(reshape(a, count(a.shape[:-1]), a.shape[-1]), b), *a.shape[:-1], b.shape[-1])
    assert a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2], (a.shape, b.shape)
    (n, k), m = a.shape[-2:], b.shape[-1]
    blocks = count(a.shape[:-2])
    cut = lambda x, i, size: x[i * size:(i + 1) * size]
    each = lambda f: [x for i in range(blocks) for x in f(i)]
    r = Tensor(a.shape[:-1] + (m,), each(lambda i: _product(cut(a.data, i, n * k), cut(b.data, i, k * m), n, k, m)))

    def back(g):
        a.gain(each(lambda i: _product(cut(g, i, n * m), _flip(cut(b.data, i, k * m), k, m), n, m, k)))
        b.gain(each(lambda i: _product(_flip(cut(a.data, i, n * k), n, k), cut(g, i, n * m), k, n, m)))
    _notes.append((r, back))
    return r


# ---- what models share ---------------------------------------------------------------------------
def _peak(x):
    """The maxima along the last axis, as constants."""
    n = x.shape[-1]
    return Tensor(x.shape[:-1] + (1,), [max(x.data[i:i + n]) for i in range(0, len(x.data), n)])


def softmax(x):
    """Along the last axis; -inf in x leaves an element out."""
    e = exp(x - _peak(x))
    return e / total(e, keep=True)


def log_sum_exp(x):
    """Along the last axis."""
    top = _peak(x)
    return log(total(exp(x - top))) + Tensor(x.shape[:-1], top.data)


def cross_entropy(z, targets):
    """Mean of logits [n, words] against a list of n targets, over those that are not negative."""
    known = [i for i, t in enumerate(targets) if t >= 0]
    words = z.shape[-1]
    right = take(z, (len(known),), [i * words + targets[i] for i in known])
    return mean(log_sum_exp(rows(z, known)) - right)
