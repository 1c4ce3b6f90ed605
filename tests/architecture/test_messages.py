"""Messages call the program by `core.command.me`: `paragan` need not be on the user's PATH."""

import ast


def test_no_message_calls_paragan_by_a_fixed_name(modules):
    texts = ((m, node) for m in modules for node in m.code if isinstance(node, ast.Constant))
    fixed = [m.at(node) for m, node in texts if isinstance(node.value, str) and "`paragan " in node.value]
    assert fixed == []
