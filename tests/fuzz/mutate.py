"""Changes to bytes and to JSON by a seeded random number generator."""

import copy
import json

NUMBERS = [0, -1, 1, 7, 255, 1 << 31, 1 << 40, -(1 << 63), 1 << 63, 1 << 80, 10**9, 0.5, 1e308]
HOSTILE = [
    *NUMBERS,
    float("inf"),
    float("nan"),
    None,
    True,
    "",
    "x",
    "\ud800",
    "\0",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/%2e%2e/b",
    "\x1b[2J[red]",
    "x" * 5000,
    "=====",
    "void",
    "pickle",
    "tuple",
    "nullable",
    "structured",
    "map",
    "value",
    "timer",
    "rows",
    "savepoint",
    [],
    {},
    [[]],
    {"": {}},
    [None],
    {"id": "int", "version": 1, "payload": None},
]


def mutate_bytes(rng, data):
    """Flip, cut, insert, repeat or exchange bytes, one to three times."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(made):
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del made[at : at + rng.choice((1, 4, 64, 4096))]
        elif kind == 3:
            made[at:at] = rng.randbytes(rng.choice((1, 4, 16)))
        elif kind == 4:
            del made[at:]
        elif kind == 5:
            made[at : at + 4] = rng.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 1 << 24)).to_bytes(
                4, rng.choice(("little", "big"))
            )
        else:
            other = rng.randrange(len(made) + 1)
            made[at:at] = made[other : other + rng.choice((1, 8, 100))]
    return bytes(made)


def nodes(tree, path=()):
    """Return the paths of all nodes of a JSON tree."""
    yield path
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from nodes(part, (*path, key))
    elif isinstance(tree, list):
        for number, part in enumerate(tree):
            yield from nodes(part, (*path, number))


def mutate_tree(rng, tree):
    """Return a copy of a JSON tree with some nodes replaced, removed, doubled or nested."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *parents, last = rng.choice([path for path in nodes(tree) if path] or [("x",)])
        node = tree
        for step in parents:
            node = node[step]
        if not isinstance(node, (dict, list)) or (isinstance(node, dict) and last not in node):
            continue
        kind = rng.randrange(8)
        if kind == 0:
            del node[last]
        elif kind == 1 and isinstance(node, list):
            node.insert(rng.randrange(len(node) + 1), node[last])
        elif kind == 2 and isinstance(node, dict):
            node[rng.choice(("surprise", "", "\ud800", *node))] = node[last]
        elif kind == 3:
            for _ in range(rng.choice((1, 20, 200))):
                node[last] = [node[last]]
        elif kind == 4 and isinstance(node[last], str):
            node[last] = mutate_bytes(rng, node[last].encode("utf-8", "replace")).decode("latin-1")
        elif kind == 5 and isinstance(node[last], int):
            node[last] += rng.choice((-1, 1, 128, -128, 1 << 16))
        else:
            node[last] = copy.deepcopy(rng.choice(HOSTILE))  # the next change may modify it
    return tree
