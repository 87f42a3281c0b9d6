"""png.py FILE N light|dark: whether at least N colours other than greys each cover some of the picture, on such a ground."""
import collections, struct, sys, zlib
data = open(sys.argv[1], 'rb').read()
assert data[:8] == b'\x89PNG\r\n\x1a\n'
at, packed = 8, b''
while at < len(data):
    n, kind = struct.unpack('>I4s', data[at:at + 8])
    body = data[at + 8:at + 8 + n]
    if kind == b'IHDR': wide, tall, depth, form, _, _, lace = struct.unpack('>IIBBBBB', body)
    if kind == b'IDAT': packed += body
    at += 12 + n
assert depth == 8 and form in (2, 6) and not lace, (depth, form, lace)
size = 3 if form == 2 else 4
raw, row, seen = zlib.decompress(packed), bytearray(wide * size), collections.Counter()
for y in range(tall):
    start = y * (wide * size + 1)
    how, line = raw[start], bytearray(raw[start + 1:start + 1 + wide * size])
    for i in range(len(line)):
        a, b, c = line[i - size] if i >= size else 0, row[i], row[i - size] if i >= size else 0
        p = a + b - c
        paeth = a if abs(p - a) <= abs(p - b) and abs(p - a) <= abs(p - c) else b if abs(p - b) <= abs(p - c) else c
        line[i] = line[i] + (0, a, b, (a + b) // 2, paeth)[how] & 255
    row = line
    for x in range(0, len(line), size): seen[bytes(line[x:x + 3])] += 1
colours = [c for c, n in seen.items() if n > 200 and max(c) - min(c) > 40]
print(wide, 'x', tall, len(colours), 'colours')
ground = sum(seen.most_common(1)[0][0]) / 3
sys.exit(len(colours) < int(sys.argv[2]) or (ground < 64) != (sys.argv[3] == 'dark'))
