"""The filter for files in Git LFS that git starts in run trees and clean copies, where git-lfs does not run.

On checkout, a pointer becomes its content if that is in OBJECTS, the folder of Git LFS, or at the same path of SOURCE,
the user's work tree. PROVIDED remembers that, and such content becomes its pointer again when git compares or stores
the file. So does content in OBJECTS, where the user's git-lfs may have put it. Everything else stays as it is, also
what would exceed MOST bytes. Only the standard library is imported, because git waits for the start.
"""

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
_PATTERN = re.compile(_POINTER.format("([0-9a-f]{64})", "([0-9]{1,15})").encode())
_PACKET_BYTES = 65_516


class LargeFiles:
    """The content of the files of one work tree, at most ``most`` bytes."""

    def __init__(self, source: str, objects: str, *, provided: str, most: int) -> None:
        """The folders are described above."""
        self._source, self._objects, self._provided = Path(source), Path(objects), Path(provided)
        self._left_bytes = most

    def smudge(self, path: bytes, data: bytes) -> bytes:
        """Return the content for the pointer ``data`` of a file, or ``data``."""
        match = _PATTERN.fullmatch(data)
        if match is not None and (size_bytes := int(match[2])) <= self._left_bytes:
            oid = match[1].decode()
            for place in (self._locate(oid), self._source / os.fsdecode(path)):
                content = _read(place, size_bytes=size_bytes)
                if content is not None and hashlib.sha256(content).hexdigest() == oid:
                    self._left_bytes -= size_bytes
                    self._provided.mkdir(parents=True, exist_ok=True)
                    (self._provided / oid).touch()
                    return content
        return data

    def clean(self, path: bytes, data: bytes) -> bytes:
        """Return the pointer for content that was provided or stored, or ``data``."""
        del path
        oid = hashlib.sha256(data).hexdigest()
        is_known = (self._provided / oid).exists() or self._locate(oid).exists()
        return _POINTER.format(oid, len(data)).encode() if is_known else data

    def _locate(self, oid: str) -> Path:
        return self._objects / oid[:2] / oid[2:4] / oid


def _read(path: Path, *, size_bytes: int) -> bytes | None:
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            about = os.fstat(handle)
            return stream.read() if stat.S_ISREG(about.st_mode) and about.st_size == size_bytes else None
    return None


def _read_packets(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the packets up to the one that ends a list, or to the end."""
    while size := int(stream.read(4) or b"0", 16):
        yield stream.read(size - 4)


def _write_packets(stream: BinaryIO, packets: Iterable[bytes]) -> None:
    stream.writelines(b"%04x" % (len(packet) + 4) + packet for packet in packets)
    stream.write(b"0000")
    stream.flush()


def serve(files: LargeFiles, *, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer git until it ends, as gitattributes(5) describes under "Long Running Filter Process"."""
    for answer in ((b"git-filter-server\n", b"version=2\n"), (b"capability=clean\n", b"capability=smudge\n")):
        tuple(_read_packets(requests))
        _write_packets(answers, answer)
    while fields := dict(packet.rstrip(b"\n").split(b"=", 1) for packet in _read_packets(requests)):
        data = b"".join(_read_packets(requests))
        convert = files.smudge if fields[b"command"] == b"smudge" else files.clean
        content = convert(fields[b"pathname"], data)
        _write_packets(answers, [b"status=success\n"])
        starts = range(0, len(content), _PACKET_BYTES)
        _write_packets(answers, (content[start : start + _PACKET_BYTES] for start in starts))
        _write_packets(answers, [])


if __name__ == "__main__":
    _source, _objects, _provided, _most = sys.argv[1:]
    _files = LargeFiles(_source, _objects, provided=_provided, most=int(_most))
    serve(_files, requests=sys.stdin.buffer, answers=sys.stdout.buffer)
