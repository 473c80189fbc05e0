"""What is kept of one image: a frame of fixed size, and facts that need all of its pixels."""

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anedl.data.augment.host import HostAugment
from anedl.data.dataset import UInt8Array
from anedl.intake.decoding import UnreadableError, decode_deep
from anedl.intake.perceptual import perceptual_hash

_FACTS = struct.Struct("<IIQ32sB")  # width, height, perceptual hash, SHA-256, bits used


@dataclass(frozen=True, eq=False)
class Examined:
    """One image, decoded once."""

    frame: UInt8Array  # (side, side, 3)
    width: int  # of the upright image, before framing
    height: int
    digest: bytes  # SHA-256 of the decoded pixels and their shape
    hash: int  # 64-bit perceptual hash of the frame
    depth: int = 0  # bits that the values take in a file of 16 bits; 0 for all other files

    def to_bytes(self) -> bytes:
        """A message that `from_bytes` reads."""
        facts = _FACTS.pack(self.width, self.height, self.hash, self.digest, self.depth)
        return facts + self.frame.tobytes()

    @classmethod
    def from_bytes(cls, message: bytes, side: int) -> "Examined":
        """What `to_bytes` wrote, with a frame of `side` pixels."""
        width, height, hash_, digest, depth = _FACTS.unpack_from(message)
        frame = np.frombuffer(message, np.uint8, offset=_FACTS.size).reshape(side, side, 3)
        return cls(frame, width, height, digest, hash_, depth)


def examine(path: Path, side: int) -> Examined | str:
    """Decode a file and frame it to (side, side, 3); a sentence says why where that fails."""
    try:
        pixels, depth = decode_deep(path)
        height, width = pixels.shape[:2]
        digest = hashlib.sha256(f"{height} × {width} ".encode())
        digest.update(pixels.data)
        # The frame of "small" images is the whole image, whatever its shape, at the given side.
        frame = HostAugment("small", side).framed(pixels)
        return Examined(frame, width, height, digest.digest(), perceptual_hash(frame), depth)
    except UnreadableError as error:
        return error.reason
    except MemoryError:
        return "decoding it takes more memory than there is"
