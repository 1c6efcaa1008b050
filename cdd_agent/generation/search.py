"""Search over a planning graph: exact names first, then BM25 over names, docstrings, paths and modules. Pure.

A query finds a node by words that have the same stem or, for less, by words that programmers use for the same thing:
``synonyms.txt``. A word inside another one counts too, as ``slice`` in ``islice``, and a misspelled word as the known
one. With an ``Embedder``, the meaning of the whole text is compared as well.

The index is built once a graph: it is a map from stem to the nodes with that stem, so a search reads only those.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

from cdd_agent.tickets.graph import Graph, Node, NodeId

MOST = 5
"""Results of a search. Nodes with the score of the last one are shown too."""
MOST_EQUAL = 20
"""Results of a search in all, if many have the same score."""
MOST_QUERY = 400
"""Characters of a query that are read."""
_MOST_TEXT = 4_000
"""Characters of a docstring that are read."""
_SATURATION, _LENGTH_SHARE = 1.2, 0.5
"""The constants k1 and b of BM25."""
_NAME, _SUMMARY, _TEXT, _AROUND = 3.0, 1.5, 0.6, 0.4
"""How much a word counts in a name, in the first line of a docstring, in its rest and the path, and around the node."""
_SYNONYM, _INSIDE = 0.5, 0.7
"""Weights of a synonym, and of a word inside another one; the word itself has 1."""
_NAME_SHARE = 1.0
"""Added to the score of a node whose whole name is in the query."""
_LEXICAL_SHARE = 0.25
"""Added to the similarity of meaning, which is at most 1, for the best BM25 score."""
_LEAST_SIMILARITY = 0.1
"""Texts that have nothing to do with each other are less similar."""
_SHORTEST_INSIDE, _LONGEST_INSIDE = 4, 30
"""Letters of a word that counts inside another one."""
_SHORTEST_MISSPELLED, _LEAST_SPELLING = 6, 0.85
"""Letters of a word that may be a misspelling, and how similar the known word has to be, at most 1."""
_STOP = re.compile(
    "an?|and|any|are|as|at|be|by|can|code|do|does|for|from|function|how|i|if|in|into|is|its?|logic|me|method|my|node|not|"
    "of|on|one|or|our|part|so|some|such|than|that|the|their|them|then|there|these|they|this|to|used?|using|was|we|were|"
    "what|when|where|which|who|will|with|you|your"
)
"""Words that say nothing about what is wanted."""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:[./][^\W\d]\w*)*")
_ENDINGS = (
    *("ization", "ation", "ition", "ator", "ating", "ative", "ance", "ence", "ment", "ness", "able", "ible", "ingly"),
    *("ate", "ing", "ion", "ive", "ous", "ize", "ise", "iz", "ed", "er", "or", "ly", "al", "e"),
)
_SHORT_ENDINGS = frozenset({"e", "ing", "ed"})
"""These leave at least three letters, the others four."""


class Embedder(Protocol):
    """Turns texts into vectors of length 1, whose products say how near their meanings are."""

    def compare(self, query: str, texts: Sequence[str]) -> Sequence[float] | None:
        """Return the similarity of ``query`` to each text, at most 1; None if there are more texts than it can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A node that a search has found."""

    node: NodeId
    score: float
    """Comparable within one search."""
    words: tuple[str, ...] = ()
    """The words of its name and docstring that matched, in lower case."""
    is_exact: bool = False
    """Whether the query is, or contains, its name."""


class GraphSearch:
    """The leaves of one graph, indexed."""

    def __init__(self, graph: Graph, *, embedder: Embedder | None = None) -> None:
        """Read all names and docstrings once."""
        self._graph = graph
        self._nodes = tuple(sorted(graph.leaves, key=lambda node: node.id))
        self._embedder = embedder
        self.engine = "words"
        """The basis of the last search."""
        self._names = _index_names(self._nodes)
        self._stems = [[stem_word(word) for word in split_words(node.name.rpartition(".")[2])] for node in self._nodes]
        self._vocabulary = _collect_vocabulary(self._nodes)
        self._postings: dict[str, dict[int, float]] = {}
        """Stem -> position of a node -> how often, weighted by where."""
        self._parts: dict[str, tuple[str, ...]] = {}
        """Word -> the known words with which it begins or ends."""
        lengths = []
        for position, node in enumerate(self._nodes):
            weights: dict[str, float] = {}
            for word, weight in self._weigh_words(node):
                stem = stem_word(word)
                weights[stem] = weights.get(stem, 0.0) + weight
            for stem, weight in weights.items():
                self._postings.setdefault(stem, {})[position] = weight
            lengths.append(sum(weights.values()))
        mean = sum(lengths) / len(lengths) if lengths else 0
        self._norms = [1 - _LENGTH_SHARE + _LENGTH_SHARE * (length / mean if mean else 1) for length in lengths]

    def find(self, query: str, *, subgraph: str | None = None, most: int = MOST) -> tuple[Match, ...]:
        """Return the best matches, exact names first, equal scores in the order of their ids.

        ``subgraph``: only its nodes; None: those of the whole graph. Nodes that share the last score are all returned.
        """
        query = query[:MOST_QUERY]
        subgraphs = self._graph.subgraphs
        inside = [at for at, node in enumerate(self._nodes) if subgraph is None or subgraphs[node.id] == subgraph]
        lexical, words = self._score_words(query)
        scores = self._add_meaning(query, {at: lexical[at] for at in inside if at in lexical}, inside=inside)
        exact = self._find_names(query).intersection(inside)
        ranked = [(at not in exact, -round(scores.get(at, 0.0), 3), at) for at in exact.union(scores)]
        ranked.sort()
        last = ranked[most - 1][:2] if len(ranked) > most else None
        kept = [each for number, each in enumerate(ranked) if number < most or each[:2] == last][:MOST_EQUAL]
        return tuple(
            Match(
                node=self._nodes[at].id,
                score=-score,
                words=self._find_originals(at, words.get(at, {})),
                is_exact=not is_other,
            )
            for is_other, score, at in kept
        )

    def _find_names(self, query: str) -> set[int]:
        """Return the nodes that the query names: as a whole, or by an identifier in it."""
        plain = query.strip().strip("`'\"")
        named = set(self._names.get(plain.replace("/", "."), ()))
        if words := split_words(plain):
            named.update(self._names.get(" ".join(map(stem_word, words)), ()))
        for token in _IDENTIFIER.findall(query):
            # A plain word such as "mean" may be meant as a word.
            if "_" in token or "." in token or "/" in token or (token[1:] != token[1:].lower()):
                named.update(self._names.get(token.replace("/", "."), ()))
        return named

    def _score_words(self, query: str) -> tuple[dict[int, float], dict[int, dict[str, float]]]:
        """Return position -> BM25 score, and position -> the stems that matched, and what they are worth."""
        scores: dict[int, float] = {}
        words: dict[int, dict[str, float]] = {}
        terms = dict.fromkeys(stem_word(self._correct(word)) for word in _list_query_words(query))
        for term in terms:
            best: dict[int, float] = {}
            for stem, weight in ((term, 1.0), *((other, _SYNONYM) for other in load_synonyms().get(term, ()))):
                postings = self._postings.get(stem, {})
                rarity = math.log(1 + (len(self._nodes) - len(postings) + 0.5) / (len(postings) + 0.5))
                for at, count in postings.items():
                    share = count * (_SATURATION + 1) / (count + _SATURATION * self._norms[at])
                    best[at] = max(best.get(at, 0.0), weight * rarity * share)
                    said = words.setdefault(at, {})
                    said[stem] = max(said.get(stem, 0.0), weight)
            for at, score in best.items():
                scores[at] = scores.get(at, 0.0) + score
        for at, score in scores.items():
            scores[at] = score * (1 + _NAME_SHARE * self._compare_name(at, words[at], count=len(terms)))
        return scores, words

    def _correct(self, word: str) -> str:
        """Return a word, or the known one that is most similar if nobody writes it so."""
        stem = stem_word(word)
        is_known = stem in self._postings or stem in load_synonyms() or word in self._vocabulary
        if is_known or len(word) < _SHORTEST_MISSPELLED:
            return word
        lengths = range(len(word) - 1, len(word) + 2)
        alike = sorted(each for each in self._vocabulary if each[0] == word[0] and len(each) in lengths)
        return next(iter(get_close_matches(word, alike, n=1, cutoff=_LEAST_SPELLING)), word)

    def _compare_name(self, at: int, weights: Mapping[str, float], *, count: int) -> float:
        """Return how much of a name a query of ``count`` words says, times how much of the query that is; at most 1.

        So ``mean`` is a better answer to "average" than ``mean_absolute_error``, and a long sentence that happens to
        contain a short name is none.
        """
        stems = self._stems[at]
        said = [weights.get(stem, 0.0) for stem in stems]
        return sum(said) / len(said) * min(sum(weight > 0 for weight in said) / count, 1) if said else 0.0

    def _find_originals(self, at: int, stems: Collection[str]) -> tuple[str, ...]:
        """Return the words of a node that have one of ``stems``, in the order in which they occur."""
        text = " ".join(f"{each.name} {each.docstring[:_MOST_TEXT]}" for each in self._nodes[at].definitions)
        return tuple(dict.fromkeys(word for word in split_words(text) if stem_word(word) in stems))

    def _add_meaning(self, query: str, lexical: dict[int, float], *, inside: Sequence[int]) -> dict[int, float]:
        """Return the scores with the similarity of the whole texts, if it can be had."""
        self.engine = "words"
        if self._embedder is None:
            return lexical
        found = self._embedder.compare(query, [describe_node(self._nodes[at]) for at in inside])
        if found is None:
            return lexical
        self.engine = "words and meaning"
        most = max(lexical.values(), default=0.0) or 1.0
        return {
            at: similarity + _LEXICAL_SHARE * lexical.get(at, 0.0) / most
            for at, similarity in zip(inside, found, strict=True)
            if at in lexical or similarity >= _LEAST_SIMILARITY
        }

    def _weigh_words(self, node: Node) -> Iterator[tuple[str, float]]:
        """Yield the words of a node, and how much each counts."""
        for each in node.definitions:
            names = split_words(each.name)
            for word in (*names, *_abbreviate(names)):
                yield word, _NAME
                yield from ((part, _NAME * _INSIDE) for part in self._find_inside(word))
            first, _, rest = each.docstring.strip()[:_MOST_TEXT].partition("\n")
            yield from _weigh(first, _SUMMARY)
            yield from _weigh(rest, _TEXT)
            yield from _weigh(each.signature, _AROUND)
            yield from _weigh(each.file_path.removesuffix(".py").removeprefix("src/"), _TEXT)
        parent = self._graph.by_id.get(node.parent) if node.parent else None
        if parent is not None:
            yield from _weigh(parent.docstring[:_MOST_TEXT], _AROUND)

    def _find_inside(self, word: str) -> tuple[str, ...]:
        """Return the known words with which a word begins or ends."""
        if word not in self._parts:
            lengths = range(_SHORTEST_INSIDE, min(len(word), _LONGEST_INSIDE))
            parts = (part for length in lengths for part in (word[:length], word[-length:]))
            self._parts[word] = tuple(part for part in parts if part in self._vocabulary)
        return self._parts[word]


def describe_node(node: Node) -> str:
    """Return the text of a node whose meaning is compared: the words of its names, and the docstrings' first lines."""
    return ". ".join(
        f"{' '.join(split_words(each.name))}: {each.docstring.strip().partition(chr(10))[0][:_MOST_TEXT]}"
        for each in node.definitions
    )


def split_words(text: str) -> list[str]:
    """Return the words of a text or an identifier in lower case.

    >>> split_words("parse_CSVFile: reads k rows")
    ['parse', 'csv', 'file', 'reads', 'k', 'rows']
    """
    return [word.lower() for word in _WORD.findall(text)]


@lru_cache(maxsize=50_000)
def stem_word(word: str) -> str:
    """Return the part that the forms of a word share, by a few rules for English.

    >>> [stem_word(word) for word in ("validate", "validation", "validators", "valid")]
    ['valid', 'valid', 'valid', 'valid']
    """
    stem = word.replace("centre", "center").replace("our", "or")
    if stem.endswith("ies") and len(stem) > 4:
        stem = f"{stem[:-3]}y"
    elif stem.endswith(("ches", "shes", "sses", "xes")):
        stem = stem[:-2]
    elif stem.endswith("s") and not stem.endswith(("ss", "us", "is")) and len(stem) > 3:
        stem = stem[:-1]
    while (shorter := _strip_ending(stem)) != stem:
        stem = shorter
    return f"{stem[:-1]}i" if stem.endswith("y") and len(stem) > 3 else stem


def _strip_ending(word: str) -> str:
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        least = 3 if ending in _SHORT_ENDINGS else 4
        if rest != word and len(rest) >= least and re.search("[aeiouy]", rest):
            is_doubled = rest[-1] == rest[-2] and rest[-1] not in "aeiols" and ending != "e"
            return rest[:-1] if is_doubled else rest
    return word


@cache
def _read_synonyms() -> tuple[tuple[str, ...], ...]:
    """Return the groups of words that programmers use for the same thing."""
    lines = Path(__file__).with_name("synonyms.txt").read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines if not line.startswith("#"))


@cache
def load_synonyms() -> Mapping[str, frozenset[str]]:
    """Return stem -> the stems of words that programmers use for the same thing."""
    found: dict[str, set[str]] = {}
    for words in _read_synonyms():
        group = {stem_word(word) for word in words}
        for stem in group:
            found.setdefault(stem, set()).update(group - {stem})
    return {stem: frozenset(others) for stem, others in found.items()}


def _list_query_words(query: str) -> list[str]:
    """Return the words of a query that say something; all of them if none does."""
    words = split_words(query)
    telling = [word for word in words if not _STOP.fullmatch(word)]
    if len(telling) > 1 and telling[0] in ("find", "search", "show"):
        telling = telling[1:]  # what to do, not what to find
    return telling or words


def _weigh(text: str, weight: float) -> Iterator[tuple[str, float]]:
    return ((word, weight) for word in split_words(text) if not _STOP.fullmatch(word))


def _abbreviate(words: Sequence[str]) -> tuple[str, ...]:
    """Return the initials of several words, and the words as one, as people write a name."""
    if len(words) < 2:
        return ()
    return ("".join(word[0] for word in words), "".join(words))


def _collect_vocabulary(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the words that may count inside of others."""
    words = {word for group in _read_synonyms() for word in group}
    for node in nodes:
        for each in node.definitions:
            words.update(split_words(each.name))
            words.update(split_words(each.docstring[:_MOST_TEXT]))
    return frozenset(word for word in words if len(word) >= _SHORTEST_INSIDE and not _STOP.fullmatch(word))


def _index_names(nodes: Sequence[Node]) -> Mapping[str, set[int]]:
    """Return name -> the nodes that have it: qualified, bare, as an id, and as stems of its words."""
    found: dict[str, set[int]] = {}
    for at, node in enumerate(nodes):
        found.setdefault(node.id, set()).add(at)
        for each in node.definitions:
            bare = each.name.rpartition(".")[2]
            for name in {each.name, bare, " ".join(stem_word(word) for word in split_words(bare))}:
                found.setdefault(name, set()).add(at)
    return found
