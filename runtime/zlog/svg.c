/* A figure as an SVG picture. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 540, LEFT = 72, TOP = 58, BOTTOM = 56, NAME_CHARS = 28, LETTER = 7 };

typedef struct {
  const ZvFigure *f;
  ZbArena *a;
  ZbText *out;
  ZvScale x, y;
  double right; /* of the plot */
} Drawing;

/* Of what others wrote: shown as it is safe, and with XML's own characters escaped. */
static void put_escaped(ZbText *t, const char *s) {
  for (; *s; s++)
    if (*s == '<') zb_text_add(t, "&lt;");
    else if (*s == '>') zb_text_add(t, "&gt;");
    else if (*s == '&') zb_text_add(t, "&amp;");
    else if (*s == '"') zb_text_add(t, "&quot;");
    else zb_text_put(t, s, 1);
}

/* Characters: bytes that go on with one begun do not count. */
static size_t letters(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
  return n;
}

/* The end of a name says more than its beginning. */
static void put_name(ZbText *t, const char *name) {
  const char *shown = zb_show(name);
  size_t n = letters(shown);
  if (n > NAME_CHARS) {
    for (size_t skip = n - NAME_CHARS + 1; skip || ((unsigned char)*shown & 0xc0) == 0x80; shown++)
      skip -= ((unsigned char)*shown & 0xc0) != 0x80;
    zb_text_add(t, "\xe2\x80\xa6");
  }
  put_escaped(t, shown);
}

/* ---- ranges ---- */
static void widen(double range[2], const ZvXY *p, size_t n, bool y) {
  for (size_t i = 0; i < n; i++) {
    double v = y ? p[i].y : p[i].x;
    if (isnan(v)) continue;
    if (isnan(range[0]) || v < range[0]) range[0] = v;
    if (isnan(range[1]) || v > range[1]) range[1] = v;
  }
}

/* What is drawn strongly is within; pale points may leave at the top. */
static void fit(Drawing *d) {
  double x[2] = {NAN, NAN}, y[2] = {NAN, NAN};
  size_t longest = 0;
  for (size_t i = 0; i < d->f->n; i++) {
    const ZvCurve *c = &d->f->curve[i];
    size_t n = letters(zb_show(c->name));
    widen(x, c->smooth, c->n, false);
    widen(x, c->eval, c->neval, false);
    widen(y, c->smooth, c->n, true);
    widen(y, c->eval, c->neval, true);
    if (n > longest) longest = n < NAME_CHARS ? n : NAME_CHARS;
  }
  d->right = WIDTH - 62 - (double)(LETTER * longest);
  double room = d->f->log ? 0 : 0.05 * (y[1] - y[0]),
         factor = d->f->log ? exp(0.05 * (log(y[1]) - log(y[0]))) : 1;
  d->x = zv_scale(x[0], x[1], false, 8);
  d->y = zv_scale((y[0] - room) / factor, (y[1] + room) * factor, d->f->log, 7);
  d->x.at = LEFT;
  d->x.size = d->right - LEFT;
  d->y.at = HEIGHT - BOTTOM;
  d->y.size = -(HEIGHT - BOTTOM - TOP);
}

/* ---- parts ---- */
static void put_axes(Drawing *d) {
  ZbText *t = d->out;
  double bottom = HEIGHT - BOTTOM;
  zb_text_add(t, "<g class=\"grid\" stroke=\"#e6e8eb\">\n");
  for (int i = 0; i < d->y.n; i++)
    zb_text_add(t, "<path d=\"M%d %.1fH%.1f\"/>\n", LEFT, zv_place(&d->y, d->y.tick[i]), d->right);
  for (int i = 0; i < d->x.n; i++)
    zb_text_add(t, "<path d=\"M%.1f %dV%.1f\"/>\n", zv_place(&d->x, d->x.tick[i]), TOP, bottom);
  zb_text_add(t,
              "</g>\n<path d=\"M%d %.1fH%.1f\" stroke=\"#8a9099\"/>\n<g class=\"pale\" fill=\"#555b63\">\n",
              LEFT, bottom, d->right);
  for (int i = 0; i < d->y.n; i++)
    zb_text_add(t, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 10,
                zv_place(&d->y, d->y.tick[i]) + 4, d->y.text[i]);
  for (int i = 0; i < d->x.n; i++)
    zb_text_add(t, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                zv_place(&d->x, d->x.tick[i]), bottom + 20, d->x.text[i]);
  zb_text_add(t, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n</g>\n",
              (LEFT + d->right) / 2, bottom + 42, d->f->xlabel);
}

static void put_line(Drawing *d, const ZvXY *p, size_t n, const char *style) {
  ZvXY *q;
  bool pen = false;
  size_t m = zv_thin(d->a, p, n, (size_t)d->x.size, &q), run = 0;
  zb_text_add(d->out, "<path %s d=\"", style);
  for (size_t i = 0; i < m; i++) {
    bool there = !isnan(q[i].y);
    run = there ? run + 1 : 0;
    if (there)
      zb_text_add(d->out, "%c%.1f %.1f", pen ? 'L' : 'M', zv_place(&d->x, q[i].x), zv_place(&d->y, q[i].y));
    if (run == 1 && (i + 1 == m || isnan(q[i + 1].y))) zb_text_add(d->out, "h0"); /* a point alone: a dot */
    pen = there;
  }
  zb_text_add(d->out, "\"/>\n");
}

/* ` stroke-dasharray="7 5"`; of a line without gaps nothing. */
static const char *dash(const Drawing *d, const ZvCurve *c) {
  return *c->dash ? zb_printf(d->a, " stroke-dasharray=\"%s\"", c->dash) : "";
}

/* The number of a curve's color among those that the style has for a dark ground. */
static size_t number(const Drawing *d, const ZvCurve *c) {
  size_t i = 0;
  while (strcmp(d->f->curve[i].color, c->color) != 0) i++;
  return i;
}

static void put_curve(Drawing *d, const ZvCurve *c) {
  ZbText *t = d->out;
  zb_text_add(
      t,
      "<g stroke=\"%s\" class=\"c%zu\" fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\">\n",
      c->color, number(d, c));
  if (d->f->smooth > 0) put_line(d, c->raw, c->n, "stroke-opacity=\"0.22\" stroke-width=\"1\"");
  put_line(d, c->smooth, c->n, zb_printf(d->a, "stroke-width=\"1.8\"%s", dash(d, c)));
  zb_text_add(t, "</g>\n");
}

static void put_evals(Drawing *d, const ZvCurve *c) {
  if (!c->neval) return;
  zb_text_add(d->out, "<g class=\"c%zu %s\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.8\">\n", number(d, c),
              c->filled ? "full" : "hollow", c->filled ? c->color : "#fff", c->color);
  for (size_t i = 0; i < c->neval; i++)
    zb_text_add(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\"/>\n", zv_place(&d->x, c->eval[i].x),
                zv_place(&d->y, c->eval[i].y));
  zb_text_add(d->out, "</g>\n");
}

static void put_legend(Drawing *d) {
  for (size_t i = 0; i < d->f->n; i++) {
    double y = TOP + 12 + 22 * (double)i, x = d->right + 18;
    zb_text_add(d->out,
                "<path class=\"c%zu\" d=\"M%.1f %.1fh20\" stroke=\"%s\" stroke-width=\"2.6\" "
                "stroke-linecap=\"round\"%s/>",
                number(d, &d->f->curve[i]), x, y - 4, d->f->curve[i].color, dash(d, &d->f->curve[i]));
    zb_text_add(d->out, "<text class=\"word\" x=\"%.1f\" y=\"%.1f\" fill=\"#2b3036\">", x + 28, y);
    put_name(d->out, d->f->curve[i].name);
    zb_text_add(d->out, "</text>\n");
  }
}

static void put_title(Drawing *d) {
  bool evals = false;
  for (size_t i = 0; i < d->f->n; i++) evals |= d->f->curve[i].neval > 0;
  zb_text_add(d->out,
              "<text class=\"word\" x=\"%d\" y=\"32\" font-size=\"18\" font-weight=\"600\" fill=\"#1b1f24\">",
              LEFT);
  put_escaped(d->out, zb_show(d->f->y));
  zb_text_add(d->out,
              "<tspan class=\"pale\" font-size=\"12.5\" font-weight=\"400\" fill=\"#6a717a\" dx=\"12\">%s",
              d->f->log ? "log scale" : "");
  if (d->f->smooth > 0) zb_text_add(d->out, "%ssmoothed by %g", d->f->log ? ", " : "", d->f->smooth);
  if (evals) zb_text_add(d->out, "%scircles: held-out data", d->f->log || d->f->smooth > 0 ? ", " : "");
  zb_text_add(d->out, "</tspan></text>\n");
}

/* Puts the colors that take the place of those of a light ground where readers prefer a dark one. Programs
 * that know nothing of that show the light one. */
static void put_style(Drawing *d) {
  zb_text_add(
      d->out,
      "<style>@media (prefers-color-scheme: dark) {\n.ground { fill: #16181b } .grid { stroke: #34393f }"
      " .pale { fill: #a4abb4 } .word { fill: #dfe3e8 }\n");
  for (size_t i = 0; i < d->f->n; i++)
    if (number(d, &d->f->curve[i]) == i)
      zb_text_add(d->out, ".c%zu { stroke: %s } .c%zu.full { fill: %s }\n", i, d->f->curve[i].dark, i,
                  d->f->curve[i].dark);
  zb_text_add(d->out, ".hollow { fill: #16181b }\n}</style>\n");
}

void zv_svg(const ZvFigure *f, ZbText *out) {
  Drawing d = {.f = f, .a = zb_arena_new(), .out = out};
  fit(&d);
  double legend = TOP + 40 + 22 * (double)f->n, height = legend > HEIGHT ? legend : HEIGHT;
  zb_text_add(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\"\n"
      "     font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
      "<rect class=\"ground\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
      "<clipPath id=\"plot\"><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/></clipPath>\n",
      WIDTH, height, WIDTH, height, LEFT, TOP, d.right - LEFT + 5, HEIGHT - BOTTOM - TOP);
  put_style(&d);
  put_title(&d);
  put_axes(&d);
  zb_text_add(out, "<g clip-path=\"url(#plot)\">\n");
  for (size_t i = 0; i < f->n; i++) put_curve(&d, &f->curve[i]);
  for (size_t i = 0; i < f->n; i++) put_evals(&d, &f->curve[i]);
  zb_text_add(out, "</g>\n");
  put_legend(&d);
  zb_text_add(out, "</svg>\n");
  zb_arena_free(d.a);
}
