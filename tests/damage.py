"""Files damaged at random: bytes changed, cut, doubled; values of JSON of another kind, or gone.

changed = damaged(random.Random(0), path.read_bytes())
"""

import copy
import json

# Damage to bytes ----------------------------------------------------------------------------------

LITERALS = (b"NaN", b"-Infinity", b"1e999", b"-1", b"true", b"null", b"1.5", b'""', b"9" * 400)


def flip(draw, content):
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(draw, content):
    return content[: draw.randrange(len(content))]


def insert(draw, content):
    at = draw.randrange(len(content))
    piece = draw.choice([draw.randbytes(draw.randrange(1, 9)), b"\xff\xfe", b"\0", b"[" * 99_999])
    return content[:at] + piece + content[at:]


def repeat(draw, content):
    start, stop = sorted(draw.randrange(len(content)) for _ in range(2))
    return content[:stop] + content[start:]


def drop(draw, content):
    start, stop = sorted(draw.randrange(len(content)) for _ in range(2))
    return content[:start] + content[stop:]


def literal(draw, content):
    """Another literal in the place of some digits."""
    digits = [i for i, byte in enumerate(content[:4000]) if 48 <= byte <= 57]
    at = draw.choice(digits or [0])
    return content[:at] + draw.choice(LITERALS) + content[at + 1 :]


BYTES = (flip, flip, cut, insert, repeat, drop, literal)

# Damage to JSON values ----------------------------------------------------------------------------

ODD = (None, True, False, -1, 0, 1, 1.5, 1e308, 10**30, "", "x", "\0", "\ud800", "../x", "y" * 5000)
ODD += ([], {}, [[]], {"": None}, ["a", "b"], 2**31, 2**63, 2**64)


def places(value):
    """(container, key) of every value inside, in order."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def damaged_value(draw, value):
    """The JSON text of `value` with one place in it of another kind, gone, renamed or twice."""
    value = copy.deepcopy(value)
    holder, key = draw.choice(list(places(value)))
    way = draw.choice(["odd", "odd", "odd", "drop", "rename", "swap", "deep", "twice"])
    if way == "odd":
        holder[key] = draw.choice(ODD)
    elif way == "drop":
        del holder[key]
    elif way == "deep":
        for _ in range(draw.choice([3, 70, 400])):
            holder[key] = draw.choice([[holder[key]], {"a": holder[key]}])
    elif way == "swap":
        other, name = draw.choice(list(places(value)))
        holder[key] = copy.deepcopy(other[name])
    elif isinstance(holder, dict) and way == "rename":
        holder[draw.choice(["", "x", key + "s", "z" * 300])] = holder.pop(key)
    elif isinstance(holder, dict):
        holder["\1"] = holder[key]
        return json.dumps(value).replace('"\\u0001"', json.dumps(key)).encode()
    return json.dumps(value).encode()


def damaged(draw, content):
    """The bytes of a file, damaged in one way or two."""
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if isinstance(value, dict | list) and value and draw.random() < 0.6:
        content = damaged_value(draw, value)
    else:
        content = draw.choice(BYTES)(draw, content)
    return draw.choice(BYTES)(draw, content) if content and draw.random() < 0.1 else content
