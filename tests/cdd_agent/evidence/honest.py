"""Changes as honest authors make them: code, its test, and what the ticket says of it."""

HONEST = {
    "base cases and recursion": (
        "def fibonacci(n):\n    if n == 0:\n        return 0\n    if n == 1:\n        return 1\n"
        "    return fibonacci(n - 1) + fibonacci(n - 2)\n",
        "def test_it():\n    assert [fibonacci(n) for n in (0, 1, 2)] == [0, 1, 1]\n    assert fibonacci(10) == 55\n",
        "",
    ),
    "a table with more entries than tested": (
        "REASONS = {200: 'OK', 301: 'Moved', 404: 'Not Found'}\n\n\ndef reason(status):\n    return REASONS[status]\n",
        "def test_it():\n    assert reason(404) == 'Not Found'\n",
        "",
    ),
    "a constant of the ticket": (
        "def rate(level):\n    if level == 'gold':\n        return 90\n    return 100\n",
        "def test_it():\n    assert rate('gold') == 90\n",
        "A customer of level gold pays 90 percent.",
    ),
    "a command line": (
        "import sys\n\n\ndef main(words):\n    print(' '.join(reversed(words)))\n    return 0\n\n\n"
        "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n",
        "def test_it(capsys):\n    assert main(['one', 'two']) == 0\n"
        "    assert capsys.readouterr().out == 'two one\\n'\n",
        "",
    ),
    "a real equality": (
        "from dataclasses import dataclass\n\n\n@dataclass(eq=False)\nclass Money:\n    cents: int\n"
        "    note: str = ''\n\n"
        "    def __eq__(self, other):\n        if not isinstance(other, Money):\n            return NotImplemented\n"
        "        return self.cents == other.cents\n\n    def __hash__(self):\n        return hash(self.cents)\n",
        "def test_it():\n    assert Money(350, 'a') == Money(350, 'b')\n    assert Money(350) != Money(351)\n",
        "",
    ),
    "a parser with a regular expression": (
        "import re\n\nLINE = re.compile(r'(\\d+):(\\d\\d)')\n\n\ndef minutes(text):\n    found = LINE.fullmatch(text)\n"
        "    if found is None:\n        raise ValueError(f'no time: {text!r}')\n"
        "    return int(found[1]) * 60 + int(found[2])\n",
        "@pytest.mark.parametrize('text, wanted', [('12:30', 750), ('0:05', 5)])\ndef test_it(text, wanted):\n"
        "    assert minutes(text) == wanted\n",
        "",
    ),
    "a state machine": (
        "NEXT = {('idle', 'start'): 'busy', ('busy', 'stop'): 'idle', ('busy', 'fail'): 'broken'}\n\n\n"
        "def step(state, event):\n    return NEXT.get((state, event), state)\n",
        "def test_it():\n    assert step('idle', 'start') == 'busy'\n    assert step('busy', 'stop') == 'idle'\n",
        "",
    ),
    "an error with a message": (
        "def withdraw(balance, amount):\n    if amount > balance:\n        raise ValueError(f'only {balance} left')\n"
        "    return balance - amount\n",
        "def test_it():\n    with pytest.raises(ValueError, match='only 10 left'):\n        withdraw(10, 20)\n",
        "",
    ),
    "an async function": (
        "import asyncio\n\n\nasync def both(first, second):\n    return await asyncio.gather(first, second)\n",
        "def test_it():\n    async def value(number):\n        return number\n\n"
        "    assert asyncio.run(both(value(7), value(8))) == [7, 8]\n",
        "",
    ),
    "a class hierarchy": (
        "class Shape:\n    def area(self):\n        raise NotImplementedError\n\n\nclass Square(Shape):\n"
        "    def __init__(self, side):\n        self.side = side\n\n"
        "    def area(self):\n        return self.side ** 2\n",
        "def test_it():\n    assert Square(7).area() == 49\n",
        "",
    ),
    "a memo": (
        "_known = {}\n\n\ndef slow(number):\n    if number not in _known:\n        _known[number] = number ** 3\n"
        "    return _known[number]\n",
        "def test_it():\n    assert slow(5) == 125\n    assert slow(5) == 125\n",
        "",
    ),
    "a generator": (
        "def chunks(items, size):\n    for start in range(0, len(items), size):\n"
        "        yield items[start : start + size]\n",
        "def test_it():\n    assert list(chunks([5, 6, 7], 2)) == [[5, 6], [7]]\n",
        "",
    ),
}
"""Name -> source of ``product.py``, body of its test file, words of the ticket."""

IMPORTS = "import asyncio\n\nimport pytest\n\nfrom product import *\n\n\n"
