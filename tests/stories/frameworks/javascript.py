"""The step in JavaScript, tested by node itself and by what npm installs."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from tests.cdd_agent.testrun.frameworks.javascript_samples import INSTALLED, install
from tests.stories.frameworks.language import Language, Ready

_CACHES = (".vite*", ".cache")


def _npm(project: Path, _shared: Path) -> Ready:
    """Packages as `npm install` leaves them in the project: a folder of its own, by links to files installed once."""
    problem = install()
    if problem is None:
        shutil.copytree(
            INSTALLED / "node_modules",
            project / "node_modules",
            symlinks=True,
            ignore=shutil.ignore_patterns(*_CACHES),
            copy_function=_linked,
        )
    return Ready(problem=problem)


def _linked(source: str, copy: str) -> None:
    try:
        os.link(source, copy, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, copy, follow_symlinks=False)


NODE = Language(
    framework="node",
    program="node",
    files={
        "package.json": '{"name": "sums", "type": "module", "scripts": {"test": "node --test"}}\n',
        "src/sum.js": "export const sum = (a, b) => a + b;\n",
        "test/sum.test.js": "import assert from 'node:assert';\nimport test from 'node:test';\n"
        "import { sum } from '../src/sum.js';\n\ntest('adds', () => assert.equal(sum(1, 2), 3));\n",
    },
    test="test/mul.test.js",
    test_text="import assert from 'node:assert';\nimport test from 'node:test';\n"
    "import { mul } from '../src/mul.js';\n\ntest('multiplies', () => assert.equal(mul(3, 4), 12));\n",
    bent="import test from 'node:test';\n\ntest('multiplies', () => {});\n",
    source="src/mul.js",
    wrong="export const mul = (a, b) => a + b;\n",
    right="export const mul = (a, b) => a * b;\n",
    tidy="export const mul = (left, right) => left * right;\n",
    old="test/sum.test.js::adds",
    new="test/mul.test.js::multiplies",
)
VITEST = replace(
    NODE,
    framework="vitest",
    files={
        "package.json": '{"name": "sums", "type": "module", "scripts": {"test": "vitest"}}\n',
        ".gitignore": "node_modules\n",
        "src/sum.js": "export const sum = (a, b) => a + b;\n",
        "test/sum.test.js": "import { expect, test } from 'vitest';\nimport { sum } from '../src/sum.js';\n\n"
        "test('adds', () => expect(sum(1, 2)).toBe(3));\n",
    },
    test_text="import { expect, test } from 'vitest';\nimport { mul } from '../src/mul.js';\n\n"
    "test('multiplies', () => expect(mul(3, 4)).toBe(12));\n",
    bent="import { test } from 'vitest';\n\ntest('multiplies', () => {});\n",
    fetch=_npm,
)
JEST = replace(
    VITEST,
    framework="jest",
    files={
        "package.json": '{"name": "sums", "scripts": {"test": "jest"}}\n',
        ".gitignore": "node_modules\n",
        "src/sum.js": "exports.sum = (a, b) => a + b;\n",
        "test/sum.test.js": "const { sum } = require('../src/sum.js');\n\n"
        "test('adds', () => expect(sum(1, 2)).toBe(3));\n",
    },
    test_text="const { mul } = require('../src/mul.js');\n\ntest('multiplies', () => expect(mul(3, 4)).toBe(12));\n",
    bent="test('multiplies', () => {});\n",
    wrong="exports.mul = (a, b) => a + b;\n",
    right="exports.mul = (a, b) => a * b;\n",
    tidy="exports.mul = (left, right) => left * right;\n",
)
MOCHA = replace(
    VITEST,
    framework="mocha",
    files={
        "package.json": '{"name": "sums", "type": "module", "scripts": {"test": "mocha"}}\n',
        ".gitignore": "node_modules\n",
        "src/sum.js": "export const sum = (a, b) => a + b;\n",
        "test/sum.test.js": "import assert from 'node:assert';\nimport { sum } from '../src/sum.js';\n\n"
        "it('adds', () => assert.equal(sum(1, 2), 3));\n",
    },
    test_text="import assert from 'node:assert';\nimport { mul } from '../src/mul.js';\n\n"
    "it('multiplies', () => assert.equal(mul(3, 4), 12));\n",
    bent="it('multiplies', () => {});\n",
)
