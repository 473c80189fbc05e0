import pickle
import struct
import warnings

import numpy as np
import pytest

from anedl.data.cifar_pickle import read_cifar_pickle
from anedl.errors import DataError

REMEDY = "run `anedl data fetch cifar10`"


def text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2 and numpy 1 wrote, memo and all: one opcode a line."""
    raw = pixels.tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(",
            text("data") + b"q\x02",
            b"cnumpy.core.multiarray\n_reconstruct\nq\x03",
            b"cnumpy\nndarray\nq\x04",
            b"K\x00\x85" + text("b") + b"\x87Rq\x05",
            b"(K\x01M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86",
            b"cnumpy\ndtype\nq\x06" + text("u1") + b"K\x00K\x01\x87Rq\x07",
            b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb",
            text("labels") + b"q\x08](" + b"".join(b"K" + bytes([n]) for n in labels) + b"e",
            b"u.",
        ]
    )


def table(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 3072), dtype=np.uint8)


def read(path):
    return read_cifar_pickle(path, ("labels",), REMEDY)


def test_python2_batch_is_read(tmp_path):
    content = python2_batch(table(3), [4, 0, 9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        genuine = pickle.loads(content, encoding="latin1")
    np.testing.assert_array_equal(genuine["data"], table(3))
    (tmp_path / "batch").write_bytes(content)
    pixels, labels = read(tmp_path / "batch")
    np.testing.assert_array_equal(pixels, table(3))
    np.testing.assert_array_equal(labels, [[4], [0], [9]])


@pytest.mark.parametrize("protocol", [3, 4])
def test_batch_saved_again_by_a_newer_python_is_read(tmp_path, protocol):
    content = pickle.dumps({"data": table(2), "labels": [1, 2]}, protocol)
    assert b"numpy._core.multiarray" in content or b"numpy.core.multiarray" in content
    (tmp_path / "batch").write_bytes(content)
    np.testing.assert_array_equal(read(tmp_path / "batch")[0], table(2))


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def harmful_batches(marker: str) -> dict[str, bytes]:
    code = f"__import__('pathlib').Path({marker!r}).touch()"
    shell = f"touch {marker}"
    quoted = b"U" + bytes([len(shell)]) + shell.encode()
    return {
        "eval": pickle.dumps(Calls(eval, code), 2),
        "eval inside a batch": pickle.dumps({"data": Calls(eval, code), "labels": [1]}, 4),
        "exec, newest protocol": pickle.dumps(Calls(exec, code), 5),
        "os.system": b"\x80\x02cos\nsystem\n" + quoted + b"\x85R.",
        "posix.system by INST": b"(S'" + shell.encode() + b"'\niposix\nsystem\n.",
        "subprocess by OBJ": b"\x80\x02(csubprocess\ngetoutput\n" + quoted + b"o.",
        "python 2 builtins": b"c__builtin__\neval\n(S" + repr(code).encode() + b"\ntR.",
        "numpy.load": b"\x80\x02cnumpy\nload\n" + quoted + b"\x85R.",
        "numpy loads": b"\x80\x02cnumpy.core.multiarray\nscalar\n" + quoted + b"\x85R.",
        "through numpy": b"\x80\x02cnumpy.core.multiarray\nos.system\n" + quoted + b"\x85R.",
        "below an admitted name": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93"
        + quoted
        + b"\x85R.",
        "codecs": pickle.dumps(b"raw", 2),
        "text as array": b"\x80\x02cnumpy\ndtype\n" + text("O") + b"\x85R.",
    }


@pytest.mark.parametrize("kind", harmful_batches(""))
def test_harmful_pickle_is_refused_before_it_runs(tmp_path, kind):
    marker = tmp_path / "ran"
    path = tmp_path / "data_batch_1"
    path.write_bytes(harmful_batches(str(marker))[kind])
    with pytest.raises(DataError, match=r"refused: it asks for .*nothing of it was run") as caught:
        read(path)
    assert not marker.exists()
    assert str(path) in str(caught.value)
    assert REMEDY in str(caught.value)


def test_the_harmful_pickle_would_have_run(tmp_path):
    """So that the test above does not pass because its pickles are duds."""
    for kind in ("eval", "os.system", "posix.system by INST", "python 2 builtins"):
        marker = tmp_path / kind.replace(" ", "-")
        pickle.loads(harmful_batches(str(marker))[kind])
        assert marker.exists(), kind


def test_stand_ins_cannot_be_altered(tmp_path):
    """BUILD on an admitted name itself must not write attributes to it."""
    (tmp_path / "b").write_bytes(b"\x80\x02cnumpy\nndarray\n}(" + text("x") + b"K\x01u\x86b.")
    with pytest.raises(DataError):
        read(tmp_path / "b")
    (tmp_path / "b").write_bytes(python2_batch(table(1), [1]))
    assert read(tmp_path / "b")[0].shape == (1, 3072)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a CIFAR batch file"),
        (b"plain text", "not a CIFAR batch file"),
        (python2_batch(table(2), [1, 2])[:-40], "not a CIFAR batch file"),
        (pickle.dumps([1, 2]), "no dictionary"),
        (pickle.dumps({"labels": [1]}), "no entry data"),
        (pickle.dumps({"data": [1], "labels": [1]}), "no table of pixels"),
        (python2_batch(table(2), [1, 2, 3]), "2 images but 3 'labels'"),
        (pickle.dumps({"data": table(1), "labels": ["cat"]}, 4), "no list of integers"),
        (pickle.dumps({"data": table(1), "labels": [1 << 70]}, 4), "beyond 64 bits"),
    ],
)
def test_damaged_batch_is_named(tmp_path, content, message):
    path = tmp_path / "data_batch_2"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert REMEDY in str(caught.value)
