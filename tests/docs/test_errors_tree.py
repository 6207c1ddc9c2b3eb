"""The tree at the top of core/errors.py is the tree of the classes."""

import re

from drumbeat.core import errors
from drumbeat.core.errors import DrumbeatError

BRANCH = re.compile(r"^((?:[│ ] {3})*)[├└]── (\w+) +\S", re.MULTILINE)


def drawn() -> dict[str, str]:
    """Each error of the drawing, with the one above it."""
    above, tree = ["DrumbeatError"], {}
    for indent, name in BRANCH.findall(errors.__doc__ or ""):
        depth = len(indent) // 4 + 1
        tree[name] = above[depth - 1]
        above[depth:] = [name]
    return tree


def test_every_error_is_drawn_where_it_belongs() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DrumbeatError)]

    assert drawn() == {each.__name__: each.__base__.__name__ for each in classes if each is not DrumbeatError and each.__base__}


def test_every_error_says_what_it_is() -> None:
    assert len(drawn()) > 10
    assert all(getattr(errors, name).__doc__ for name in drawn())
