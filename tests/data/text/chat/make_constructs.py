#!/usr/bin/env python3
"""Writes constructs.json: what jinja2, set up as transformers does it, makes of small templates.

    python3 make_constructs.py >constructs.json          (jinja2 3.1.6; nothing else)

Each case is {"template", "text"} or {"template", "fails": true}, with "more" where it has variables of its own. All see MESSAGES and
TOOLS below, which stand at the beginning of the file.
"""
import datetime, json, sys
import jinja2, jinja2.ext, jinja2.sandbox
from jinja2.ext import Extension

MESSAGES = [
    {'role': 'system', 'content': '  Be brief.\n'},
    {'role': 'user', 'content': 'Grüße, <b>"Ada"</b> & \'Bob\'!', 'name': 'ada'},
    {'role': 'assistant', 'content': '<think>\nhm\n</think>\n\nHello', 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': 'look', 'arguments': {'city': 'Zürich', 'days': 2, 'deep': {'a': [1, 2.5, None, True], 'b': {}}}}}]},
    {'role': 'tool', 'tool_call_id': 'c1', 'name': 'look', 'content': 'rain 😀'},
    {'role': 'user', 'content': ''},
]
TOOLS = [{'type': 'function', 'function': {'name': 'look', 'description': 'schön "x" </s>', 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['a', 'b']}, 'days': {'type': 'integer', 'default': 1.0}, 'list': {'type': 'array', 'items': {'type': 'number'}}}, 'required': ['city']}}}]
NOW = 1753000000

CASES = [
    # ---- white space
    'a\n  {% if true %}\n  b\n  {% endif %}\nc\n', 'a\n\n{%- if true -%}\n\n b \n{%- endif -%}\n c', '{% if true %}\n\nx{% endif %}\n\ny', 'a {#- c -#} b {# d #}\n e', 'a\n   {# c #}\n b',
    '  {{ 1 }}  \n  {{- 2 -}}  \n 3', 'x{%+ if true %}y{% endif +%}\nz', '  {%+ if true %}y{% endif %}', 'a\r\nb\rc\n', 'a\n\n', '\n\n{{ 1 }}\n\n', '{% raw %}{{ x }} {% if %}{% endraw %}\n!', 'a  {%- raw -%}  {{x}}  {%- endraw -%}  b',
    '{% raw %}\n{{ a }}\n{% endraw %}\nb', 'a\n\t {% set x = 1 %}\t\n{{ x }}', '{% set x = 1 %}  \n{{ x }}', '{{ 1 }}\n{{ 2 }}\n', 'a\n  {% if true %}b{% endif %}\n  c', '{%- set a -%}  b  {%- endset -%}{{ a }}', '\u00a0\n{%- if true %}\u2003{% endif -%}\u3000x',
    '{% if true %}\n{% if true %}\n  x\n{% endif %}\n{% endif %}\n', 'a {%- if true %} b {%- else %} c {%- endif %} d', '{{ "a" -}}\n\n  b', '{# a\nb #}c{#- -#} d', '{% if true %}{{ 1 }}\n  {% endif %}', '{}{ }{{ "{{" }}{ {% if true %}%}{% endif %}',
    # ---- literals and operators
    '{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}', '{{ 1.0 }} {{ 1e3 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.5e300 * 1 }} {{ 3.0 // 2 }} {{ -3.5 % 2 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }}',
    '{{ -2 ** 2 }} {{ (-2) ** 2 }} {{ - 3 + 1 }} {{ +5 }} {{ not true }} {{ not 0 }} {{ -3|abs }} {{ -(3|abs) }}', '{{ true }} {{ False }} {{ none }} {{ None }} {{ true + 1 }} {{ true == 1 }} {{ 1 == 1.0 }}', '{{ "a" + "b" }} {{ "a" ~ 1 ~ none ~ 2.5 ~ [1] }} {{ "ab" * 3 }} {{ 2 * "x" }} {{ "-" * 0 }}{{ [1] * 2 }} {{ "a" "b" \'c\' }}',
    r'''{{ "a\n\t\\\"\'x\x41\u00fc\101\q" }}|{{ 'it\'s' }}''', '{{ [1, "a", 2.5, none, true, [], {}] }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ {"a": 1, "b": [2]} }}', '{{ ["it\'s", "q\\"", "both\'\\"", "n\\n\\t\\\\", "ü\u00a0\u2028\x7f"] }}', '{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 <= 1 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 2 > 1 != 0 }} {{ "Z" < "a" }} {{ 1.5 >= 2 }}',
    '{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ "b" in "abc" }} {{ "" in "abc" }} {{ "a" in {"a": 1} }} {{ 1 in {"a": 1}.values() }} {{ "x" in none_such }} {{ none in [none] }}', '{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or "x" }} {{ "" or none }} {{ 1 or none_such.x }} {{ not 1 or 2 }} {{ 1 if 0 else 2 }} {{ 1 if 1 }} {{ 1 if 0 }}| {{ 1 if 0 else 2 if 0 else 3 }}',
    '{{ [1, 2] + [3] }} {{ (1,) + (2,) }} {{ [1, 2] == [1, 2] }} {{ (1, 2) == [1, 2] }} {{ {"a": 1, "b": 2} == {"b": 2, "a": 1} }} {{ none == none }} {{ none == false }} {{ a == b }} {{ a == none }}', '{{ "abc"[0] }}{{ "abc"[-1] }}{{ "Grüße"[2] }}{{ "Grüße"[1:4] }}{{ "abc"[::-1] }}{{ "abcdef"[::2] }}{{ "abc"[5] }}{{ "abc"[2:1] }}{{ "abc"[-2:] }}{{ "abc"[:-1] }}|{{ "abcdef"[4:1:-1] }}',
    '{{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3, 4][:-1] }} {{ [1, 2, 3, 4][::-1] }} {{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3, 4][::2] }} {{ [1, 2, 3, 4][-3:-1] }} {{ [1, 2, 3][9:] }} {{ [1,2,3][-9:2] }} {{ (1, 2, 3)[1:] }} {{ [1,2,3][10::-1] }} {{ [1, 2, 3][none:2] }}', '{{ [1, 2][5] }}|{{ [1, 2][-1] }}|{{ {"a": 1}["b"] }}|{{ {"a": 1}.a }}|{{ {1: 2}[1] }}|{{ [[1, 2], [3]].0.1 }}|{{ {true: 1}[1] }}', '{{ "%s and %d, %.2f, %r, %x, %5s|%-5s|%05d %%" % ("a", 3, 2.5, "b", 255, "c", "d", 42) }} {{ "%s" % "x" }} {{ "%s" % [1] }} {{ "%i" % 3.7 }}',
    '{{ 10000000000 * 10 }} {{ 9223372036854775807 }} {{ 5 // 2.0 }} {{ 2 ** 0.5 }} {{ 1 / 3 }}', '{{ 123456789.123456789 }} {{ 1e22 }} {{ 1.7976931348623157e308 }} {{ 5e-324 }} {{ 100.0 }} {{ 1e2 }} {{ -0.0 }}', '{{ 1 + 1 ~ "x" }} {{ "x" ~ 1 + 1 }} {{ 2 * 3 ~ 4 }}', '{{ not a is defined }} {{ a is not defined }} {{ not (a is defined) and true }}',
    # ---- undefined
    '{{ x }}|{{ x is defined }}|{{ x|default("d") }}|{{ ""|default("d") }}|{{ ""|default("d", true) }}|{{ none|default("d") }}|{{ none|d("e", boolean=true) }}|{{ x|length }}|{{ x|list }}|{{ x or 1 }}|{{ not x }}', '{% for a in x %}y{% else %}none{% endfor %}', '{{ messages[0].none_such }}|{{ messages[0]["none_such"] is defined }}|{{ messages[9] is defined }}', '{{ x.y }}', '{{ x + 1 }}', '{{ "a" + x }}', '{{ x["y"] }}', '{{ x() }}', '{{ messages[0].a.b }}', '{{ none.x is defined }}', '{{ 1 + "a" }}', '{{ "a" + 1 }}',
    '{{ none + "a" }}', '{{ "a" < 1 }}', '{{ none|length }}', '{% for x in 5 %}{% endfor %}', '{% for x in none %}{% endfor %}', '{{ 1 in "a" }}', '{{ 1 in 5 }}', '{{ 1 // 0 }}', '{{ 1 % 0 }}', '{{ [1][0]() }}', '{{ [].append(1) }}', '{% set x = [] %}{{ x.append(1) }}', '{{ {"a": 1}.update({"b": 2}) }}', '{{ {"a": 1}.pop("a") }}', '{% if x.y.z %}{% endif %}', '{{ x|tojson }}', '{{ [x]|tojson }}', '{{ raise_exception("no " ~ 1) }}',
    '{% set a.b = 1 %}', '{% set x = {} %}{% set x.y = 1 %}', '{{ "abc".split("") }}', '{{ "abc".index("x") }}', '{{ range(3, 1, 0) }}', '{{ "%d" % "a" }}', '{{ "%s %s" % "a" }}', '{{ "a".foo }}|{{ "a".foo is defined }}', '{{ x ~ "a" }}', '{{ x|upper }}|{{ x|trim }}|{{ x|join }}', '{{ none|upper }} {{ 5|string + "a" }} {{ none|trim }} {{ true|lower }}', '{{ [1, 2].0 }} {{ [3]["0"] is defined }}', '{{ x == y }} {{ x != 1 }} {{ x is sameas y }}',
    # ---- statements
    '{% if a %}1{% elif b %}2{% elif true %}3{% else %}4{% endif %}', '{% if 0 %}1{% else %}2{% endif %}', '{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }} {% endfor %}', '{% for i in range(6) if i % 2 %}{{ i }}{{ loop.length }}{{ loop.last }} {% else %}n{% endfor %}',
    '{% for k, v in {"a": 1, "b": 2}.items() %}{{ k }}={{ v }};{% endfor %}', '{% for k in {"a": 1, "b": 2} %}{{ k }}{% endfor %}', '{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}', '{% for c in "aü😀" %}[{{ c }}]{% endfor %}', '{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}', '{% for i in [] %}x{% else %}empty{% endfor %}', '{% for i in [1] %}{% for j in [1, 2] %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}',
    '{% for i in [1, 2, 3] %}{{ loop.cycle("a", "b") }}{% endfor %}', '{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}', '{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}', '{% set ns = namespace(x=0, y="a") %}{% for i in range(4) %}{% set ns.x = ns.x + i %}{% set ns.z = i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{{ ns.none_such }}{{ ns["x"] }}', '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}', '{% set (a, b) = [3, 4] %}{{ a }}{{ b }}', '{% set x %}a {{ 1 }} b{% endset %}[{{ x }}]{{ x is string }}', '{% set x | upper | trim %} ab {% endset %}[{{ x }}]', '{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}',
    '{% set x = 1, 2 %}{{ x }}', '{% if true %}{% set x = 5 %}{% endif %}{{ x }}', '{% macro m(a, b="B", c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}{{ m() }}', '{% macro m(x) %}{{ x }}{% if x > 0 %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}', '{% set y = 1 %}{% macro m() %}{{ y }}{% set y = 9 %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}{{ y }}', '{% macro m(a) %}{{ caller() }}{{ a }}{{ caller() }}{% endmacro %}{% call m(1) %}<x>{% endcall %}', '{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}',
    '{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}', '{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}', '{% macro m(a) %}{% endmacro %}{{ m(b=2) }}', '{% macro m() %} x {% endmacro %}{{ m()|trim }}{{ m() is string }}{{ m is defined }}{{ m is callable }}', '{% filter upper %}ab{{ "c" }}{% endfilter %}', '{% filter replace("a", "b")|upper %}aa{% endfilter %}', '{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}', '{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}', 'a{% generation %}b{{ 1 }}{% set z = 3 %}{% endgeneration %}c{{ z }}', '{% for m in messages %}{% if loop.index0 == 1 %}{% set found = m.role %}{% endif %}{% endfor %}{{ found is defined }}',
    '{% for x in [1, 2, 3] %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}', '{% for m in messages[1:] if m.role == "user" %}{{ m.content }}{{ loop.index }}{% endfor %}', '{% macro a() %}{% for i in [1, 2] %}{{ i }}{{ loop.last }}{% endfor %}{% endmacro %}{% for j in [1] %}{{ a() }}{{ loop.index }}{% endfor %}', '{% set x = namespace(v=[]) %}{% set x.v = x.v + [1] %}{% set x.v = x.v + [2] %}{{ x.v }}', '{% for i in [3, 1] %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{% endfor %}{% endfor %}', '{% for a in [[1, 2], [3, 4]] %}{% set x, y = a %}{{ x + y }}{% endfor %}', '{% macro f(x) -%}\n  {{- x -}}\n{%- endmacro -%}\n{{ f(1) }}', '{% for i in (1, 2) %}{{ i }}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}',
    '{% set x = "a" if messages else "b" %}{{ x }}', '{% if messages and messages[0].role == "system" and not tools is none %}y{% endif %}', '{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}', '{% set loop_messages = messages %}{% for message in loop_messages %}{{ loop_messages[loop.index0 - 1].role }} {% endfor %}', '{% for m in messages|reverse %}{{ m.role[0] }}{% endfor %}', '{% set dict2 = dict(a=1, b="x") %}{{ dict2 }}{{ dict2.a }}', '{{ dict({"a": 1}, c=2) }}', '{{ namespace(a=1).a }}{{ namespace({"b": 2}).b }}',
    # ---- filters
    '{{ " a b "|trim }}|{{ "xxaxx"|trim("x") }}|{{ "Hello World"|upper }}|{{ "Hello"|lower }}|{{ "hello wORLD foo-bar (x"|title }}|{{ "hELLO wORLD"|capitalize }}|{{ "aaa"|replace("a", "b") }}|{{ "aaa"|replace("a", "b", 2) }}|{{ "abc"|replace("", "-") }}', '{{ [3, 1, 2]|sort }} {{ ["b", "A", "c"]|sort }} {{ ["b", "A", "c"]|sort(case_sensitive=true) }} {{ [3, 1]|sort(reverse=true) }} {{ [{"a": 2}, {"a": 1}]|sort(attribute="a") }} {{ [{"a": 2, "b": 1}, {"a": 1, "b": 3}]|sort(attribute="b,a") }}', '{{ [1, 2, 3]|first }} {{ [1, 2, 3]|last }} {{ []|first }}| {{ "abc"|first }}{{ "abc"|last }} {{ {"k": 1}|first }}', '{{ [1, 2]|join }} {{ [1, 2]|join(", ") }} {{ [{"a": 1}, {"a": 2}]|join("-", attribute="a") }} {{ "abc"|join("-") }} {{ [none, true, 1.5]|join("|") }}',
    '{{ [1, 2, 3]|length }} {{ "Grüße😀"|length }} {{ {"a": 1}|length }} {{ messages|count }}', '{{ [1, 2, 3]|map("string")|list }} {{ ["a"]|map("upper")|join }} {{ messages|map(attribute="role")|list }} {{ messages|map(attribute="name", default="-")|join(",") }} {{ [[1, 2]]|map(attribute=1)|list }} {{ ["a b"]|map("replace", "a", "c")|list }} {{ tools|map(attribute="function.name")|join }}', '{{ [1, 0, 2, none]|select|list }} {{ [1, 2, 3]|select("odd")|list }} {{ [1, 2, 3]|reject("odd")|list }} {{ [1, 2, 3]|select("gt", 1)|list }} {{ messages|selectattr("role", "equalto", "user")|list|length }} {{ messages|rejectattr("role", "eq", "user")|map(attribute="role")|list }} {{ messages|selectattr("name")|list|length }} {{ messages|selectattr("name", "defined")|map(attribute="name")|list }} {{ messages|selectattr("role", "in", ["tool", "user"])|list|length }}',
    '{{ {"b": 1, "a": 2}|dictsort }} {{ {"b": 1, "a": 2}|dictsort(by="value") }} {{ {"b": 1, "a": 2}|dictsort(reverse=true) }} {{ {"b": 1, "A": 2}|dictsort(true) }}', '{{ {"a": 1}|items|list }} {% for k, v in {"a": 1}|items %}{{ k }}{{ v }}{% endfor %}', '{{ [1, 2, 1, 3]|unique|list }} {{ ["a", "A", "b"]|unique|list }} {{ ["a", "A"]|unique(true)|list }} {{ [{"a": 1}, {"a": 1}]|unique(attribute="a")|list }}', '{{ [1, 2]|reverse|list }} {{ "abc"|reverse }}', '{{ "12"|int }} {{ "x"|int }} {{ "x"|int(7) }} {{ "3.7"|int }} {{ 3.7|int }} {{ " 5 "|int }} {{ "ff"|int(base=16) }} {{ none|int }} {{ "1.5"|float }} {{ "x"|float }} {{ 3|float }} {{ true|int }} {{ "-4"|int }} {{ "1e3"|float }} {{ "1e3"|int }}',
    '{{ 2.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(0, "ceil") }} {{ 2.567|round(1, "floor") }} {{ 3|round }} {{ 2.675|round(2) }} {{ -5|abs }} {{ -5.5|abs }}', '{{ [1, 5, 3]|max }} {{ [1, 5, 3]|min }} {{ ["b", "A"]|max }} {{ [{"a": 1}, {"a": 3}]|max(attribute="a") }} {{ [1, 2]|sum }} {{ [{"a": 1}, {"a": 3}]|sum(attribute="a") }} {{ [1]|sum(start=5) }}', '{{ "a\nb\n\nc"|indent }}|{{ "a\nb"|indent(2) }}|{{ "a\nb"|indent(2, true) }}|{{ "a\n\nb"|indent(2, blank=true) }}|{{ "a\nb"|indent("> ") }}|{{ "a\n"|indent(2) }}|{{ ""|indent(2, true) }}', '{{ "<a href=\'x\'>&\\"</a>"|e }} {{ "<b>"|escape }} {{ "<b>"|safe }} {{ 5|e }}', '{{ "a b  c"|wordcount }} {{ "%s-%s"|format("a", 1) }} {{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, "x")|list }}',
    '{{ [1, [2]]|string }} {{ "a"|list }} {{ {"a": 1}|list }} {{ (1, 2)|list }}', '{{ messages[2].content.split("</think>")|last|trim }}', '{{ [{"n": {"m": 1}}]|map(attribute="n.m")|list }} {{ ["ab", "cd"]|map("first")|join }} {{ ["x", "yy"]|map("length")|sum }}', '{{ ["a", "b"]|map("indent", 2, true)|join("\n") }}', '{{ "x"|upper|lower|title|string|trim|list|join|safe }}', '{{ "ǆß ﬁ ÿ ΣΑΣ ς"|upper }} {{ "ÄÖÜ ÉÀ ŸΩ Ж"|lower }} {{ "äpfel über élan"|title }} {{ "élan VITAL"|capitalize }}', '{{ 1|attr("x") is defined }}', '{{ [1, 2, 3]|select("in", [1, 3])|list }} {{ ["a", none, "b"]|reject("none")|list }} {{ [1, "a"]|select("string")|list }}',
    # ---- tojson
    '{{ tools|tojson }}', '{{ tools[0]|tojson(indent=2) }}', '{{ tools[0]|tojson(indent=4, ensure_ascii=true) }}', '{{ messages|tojson(separators=(",", ":")) }}', '{{ {"b": 1, "a": {"d": 1, "c": 2}}|tojson(sort_keys=true) }} {{ {"b": [], "a": {}}|tojson(indent=1) }}', '{{ [1.0, 1e20, 1e-7, none, true, "a\\"b\\\\c\\n\\t\x01\x7f\u2028/</script>", (1, 2)]|tojson }}', '{{ {1: 2, true: 3, none: 4, 2.5: 5}|tojson }}', '{{ "ü😀"|tojson(ensure_ascii=true) }} {{ "ü😀"|tojson }}', '{{ messages[2].tool_calls[0].function.arguments|tojson }}', '{{ [[], [[]], {"a": []}]|tojson(indent=2) }}', '{{ messages[1]|tojson(indent="\\t") }}', '{{ [1, 2]|tojson(indent=0) }}',
    # ---- tests
    '{{ 1 is number }}{{ 1.5 is number }}{{ true is number }}{{ "a" is number }} {{ 1 is integer }}{{ true is integer }}{{ 1.0 is integer }} {{ 1.0 is float }} {{ "a" is string }}{{ 1 is string }} {{ {} is mapping }}{{ [] is mapping }} {{ [] is sequence }}{{ "a" is sequence }}{{ {} is sequence }}{{ 1 is sequence }} {{ [] is iterable }}{{ "a" is iterable }}{{ 1 is iterable }}{{ none is iterable }} {{ true is boolean }}{{ 1 is boolean }} {{ true is true }}{{ 1 is true }}{{ false is false }}{{ 0 is false }}{{ none is none }}{{ 0 is none }}',
    '{{ 4 is even }}{{ 3 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }} {{ 1 is eq 1 }}{{ 1 is ne(1) }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 1 is in [1] }}{{ "a" is in "abc" }} {{ "abc" is lower }}{{ "ABC" is upper }} {{ x is undefined }}{{ range is defined }}{{ strftime_now is defined }}{{ raise_exception is defined }}{{ foo is callable }} {{ 1 is sameas 1 }}{{ none is sameas none }} {{ "upper" is filter }}{{ "odd" is test }}{{ "nope" is filter }}', '{{ x is string }}{{ x is none }}{{ x is mapping }}{{ x is sequence }}{{ x is iterable }}{{ x is number }}{{ x is true }}{{ x is false }}', '{{ messages[0].content is string and messages[0].content is not mapping }} {{ 1 is not none and 2 is not string }}', '{{ namespace(a=1) is mapping }} {{ loop is defined }} {{ (1, 2) is sequence }} {{ messages is sequence and messages is not string }}',
    # ---- methods
    '{{ " a ".strip() }}|{{ " a".lstrip() }}|{{ "a ".rstrip() }}|{{ "xyaxy".strip("xy") }}|{{ "aab".lstrip("a") }}|{{ "a\n\n".rstrip("\n") }}|{{ "\u3000a\u00a0".strip() }}', '{{ "a,b,c".split(",") }} {{ "a b  c".split() }} {{ "a,b,c".split(",", 1) }} {{ "a,b,c".rsplit(",", 1) }} {{ " a  b c ".split(none, 1) }} {{ "".split() }} {{ "".split(",") }} {{ "a<x>b<x>c".split("<x>")[-1] }} {{ " a b c ".rsplit(maxsplit=1) }} {{ "a\nb\r\nc".splitlines() }} {{ "a\nb\n".splitlines(true) }}',
    '{{ "abc".startswith("ab") }}{{ "abc".endswith("bc") }}{{ "abc".startswith(("x", "a")) }}{{ "abc".startswith("b", 1) }}{{ "abc".endswith("b", 0, 2) }}{{ "abc".startswith("") }}', '{{ "aXb".upper() }}{{ "aXb".lower() }}{{ "it\'s a dog".title() }}{{ "aBC".capitalize() }}{{ "aaa".replace("a", "b") }}{{ "aaa".replace("a", "b", 1) }}{{ "abc".find("c") }}{{ "abc".find("x") }}{{ "abcabc".rfind("c") }}{{ "üüab".find("a") }}{{ "aaaa".count("aa") }}{{ ",".join(["a", "b"]) }}', '{{ "{} {} {0}".format("a", "b") if false else "{} {}".format("a", 1) }} {{ "{0}{1}{0}".format("a", "b") }} {{ "{x}-{y}".format(x=1, y="z") }} {{ "{{}}".format() }}',
    '{{ "abc".isalpha() }}{{ "123".isdigit() }}{{ "a1".isalnum() }}{{ " ".isspace() }}{{ "".isdigit() }}{{ "AB".isupper() }}{{ "ab1".islower() }}{{ "ü".isalpha() }}', '{{ "a-b".partition("-") }}{{ "a".partition("-") }}{{ "a-b-c".rpartition("-") }}{{ "abc".removeprefix("a") }}{{ "abc".removesuffix("bc") }}{{ "abc".removesuffix("x") }}', '{{ {"a": 1}.get("a") }}{{ {"a": 1}.get("b") }}{{ {"a": 1}.get("b", 5) }}{{ {"a": 1, "b": 2}.keys()|list }}{{ {"a": 1, "b": 2}.values()|list }}{{ {"a": 1}.items()|list }}', '{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ (1, 2).index(1) }}{{ "a".split is defined }}{{ {"items": 5}["items"] }}{{ {"x": 5}["items"] is defined }}{{ {"x": 5}.items is defined }}{{ {"get": 1}.get is callable }}', '{{ {"x": 5}["items"]["type"] is defined }}', '{{ tools[0].function.parameters.properties.list["items"].type }}', '{{ messages[1].get("name") }}{{ messages[0].get("name", "x") }}', '{{ "x".join(messages|map(attribute="role")) }}', '{{ "a".join([1]) }}',
    # ---- functions
    '{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[-1] }}', '{{ strftime_now("%Y-%m-%d") }} {{ strftime_now("%d %b %Y") }} {{ strftime_now("%A, %B %d, %j") }}', '{% if strftime_now is defined %}{% set d = strftime_now("%d %b %Y") %}{% else %}{% set d = "26 Jul 2024" %}{% endif %}{{ d }}', '{% for i in range(messages|length - 1, -1, -1) %}{{ i }}{{ messages[i].role[0] }} {% endfor %}',
    # ---- variables
    ('{{ enable_thinking }}{{ enable_thinking is false }}{{ n + 1 }}{{ f }}{{ d.k[0] }}{{ s }}', {'enable_thinking': False, 'n': 3, 'f': 1.0, 'd': {'k': ['v']}, 's': 'ü'}), ('{{ big }} {{ neg }} {{ e|tojson }} {{ l|tojson }}', {'big': 9007199254740993, 'neg': -5, 'e': 1e100, 'l': [0.1, 1e-10, 12345678901234567890.0, 1.0]}), ('{{ bos_token }}{{ eos_token }}|{{ unk_token }}|{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ not_there is defined }}', {}), ('{{ documents }}', {}),
]

class Generation(Extension):
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method('_run'), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


def render(template, messages, tools, **more):
    return environment().from_string(template).render(messages=messages, tools=tools, documents=None, **more)


if __name__ == '__main__':
    out = []
    for c in CASES:
        template, more = c if isinstance(c, tuple) else (c, {})
        case = {'template': template}
        if more:
            case['more'] = more
        try:
            case['text'] = render(template, MESSAGES, TOOLS, add_generation_prompt=True, bos_token='<s>', eos_token='</s>', **more)
        except Exception as e:
            case['fails'] = True
            print('%-60r %s: %s' % (template[:60], type(e).__name__, str(e)[:100]), file=sys.stderr)
        out.append(case)
    head = {'messages': MESSAGES, 'tools': TOOLS, 'now': NOW}
    print('{"head": %s,\n"cases": [\n%s\n]}' % (json.dumps(head, ensure_ascii=False), ',\n'.join(json.dumps(c, ensure_ascii=False) for c in out)))
