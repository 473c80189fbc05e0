"""A pile of files that nobody would wish for, made on the fly, and a browser for those who ask."""

import io
import os
import shutil
import signal
import socket
import struct
import sys
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps


@pytest.fixture(autouse=True)
def same_arithmetic_everywhere(monkeypatch):
    """Tests compute in fp32 on processors, too, that would take bf16 by themselves."""
    monkeypatch.setattr("anedl.engine.precision.computes_bf16", lambda: False)


@pytest.fixture(autouse=True)
def own_memory_of_methods(monkeypatch, tmp_path_factory):
    """What the tests train with is not remembered in the user's cache."""
    place = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setattr("anedl.engine.kept_method.cache_folder", lambda: place)


@pytest.fixture
def alarm():
    """Fail instead of hanging."""

    def stop(signum, frame):
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class SmallTrunk(torch.nn.Module):
    """Stands for a trained model of timm: its weights are the same wherever it is made."""

    num_features = 24

    def __init__(self, in_chans):
        super().__init__()
        self.stem = torch.nn.Conv2d(in_chans, 12, 3, stride=2)
        self.bn = torch.nn.BatchNorm2d(12)
        self.last = torch.nn.Conv2d(12, 24, 3, stride=2)
        rng = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(0.3 * torch.randn(value.shape, generator=rng))

    def forward(self, images):
        return self.last(self.bn(self.stem(images)).relu()).relu().mean((2, 3))


@pytest.fixture
def trained_backbone(monkeypatch):
    """The name of a backbone that is trained already, through a stand-in for timm."""

    def create_model(name, pretrained=False, num_classes=0, in_chans=3):
        return SmallTrunk(in_chans)

    trained = SimpleNamespace(
        fixed_input_size=False, input_size=(3, 16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)
    )
    timm = SimpleNamespace(create_model=create_model, get_pretrained_cfg=lambda name: trained)
    monkeypatch.setitem(sys.modules, "timm", timm)
    return "timm:small:pretrained"


def noise(seed, height=12, width=10):
    """A smooth picture of its own for every seed, (height, width, 3) uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def declared_png(width, height):
    """A PNG whose header promises any size and whose data are a few bytes."""

    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 99)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@dataclass
class Hostile:
    """The pile: what each readable file must decode to, what must be skipped, what is open."""

    root: Path
    pixels: dict[bytes, np.ndarray] = field(default_factory=dict)
    bad: set[bytes] = field(default_factory=set)
    either: set[bytes] = field(default_factory=set)

    def path(self, name):
        return Path(os.fsdecode(os.fsencode(self.root) + b"/" + name))

    def good(self, name, content, pixels):
        self.path(name).write_bytes(content)
        self.pixels[name] = np.asarray(pixels)

    def broken(self, name, content):
        self.path(name).write_bytes(content)
        self.bad.add(name)


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """Some two hundred files, most of them odd."""
    pile = Hostile(tmp_path / "pile")
    pile.root.mkdir()
    (pile.root / "deep" / "er").mkdir(parents=True)
    _odd_names(pile)
    _odd_images(pile)
    _broken_files(pile)
    _special_files(pile, monkeypatch)
    assert len(pile.pixels) + len(pile.bad) + len(pile.either) >= 200
    return pile


@pytest.fixture
def forbidden(hostile, monkeypatch):
    """The same, with a file and a folder that may not be read; for programs in this process.

    The superuser may read everything, so that the system's refusal is then simulated.
    """
    picture = Image.fromarray(noise(9))
    locked, closed = hostile.root / "locked.png", hostile.root / "closed"
    hostile.broken(b"locked.png", encoded(picture, "PNG"))
    closed.mkdir()
    picture.save(closed / "inside.png")
    hostile.bad.add(b"closed/")
    for path in (locked, closed):
        path.chmod(0)
    if os.geteuid() == 0:
        for name, path in (("open", locked), ("scandir", closed)):
            monkeypatch.setattr(os, name, _refusing(getattr(os, name), path))
    yield hostile
    for path in (locked, closed):
        path.chmod(0o700)


def _refusing(real, forbidden):
    def guarded(path=".", *rest, **options):
        if not isinstance(path, int) and os.fsdecode(path) == str(forbidden):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **options)

    return guarded


def _odd_names(pile):
    names = [
        b"plain.png",
        b"new\nline.png",
        b"quo\"te's.png",
        b"comma,comma;.png",
        b" leading and trailing .png",
        b"caf\xe9.png",
        b"caf\xc3\xa9.png",
        b"\xff\xfe\x80.png",
        b"back\\slash\\x0a.png",
        b"back\\slash\x0a.png",
        b"tab\tand\rreturn.png",
        b"\x1b[31mred.png",
        "gnp\u202egpj.png".encode(),
        "日本 ünïcode 👩\u200d🔬.png".encode(),
        b"=1+1.png",
        b"-rf.png",
        b"%s%n{}.png",
        b"n" * 251 + b".png",
        b"no suffix",
        b"wrong suffix.txt",
        b"CAPITAL.PNG",
        b"two.dots.png",
        b"deep/er/below.png",
        b"deep/folder.jpg/inside.png",
    ]
    (pile.root / "deep" / "folder.jpg").mkdir()
    for seed, name in enumerate(names):
        picture = noise(seed)
        pile.good(name, encoded(Image.fromarray(picture), "PNG"), picture)


def _odd_images(pile):
    rng = np.random.default_rng(5)
    for seed in range(20):
        picture = noise(100 + seed, *rng.integers(1, 60, 2))
        pile.good(b"shape%d.png" % seed, encoded(Image.fromarray(picture), "PNG"), picture)
    for size in ((1, 1), (20_000, 10), (10, 20_000), (3, 1)):
        colour = Image.new("RGB", size, (9, 200, 77))
        pile.good(b"size%dx%d.png" % size, encoded(colour, "PNG"), np.array(colour))

    photo = Image.fromarray(noise(7, 40, 30))
    for kind in ("JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "ICO"):
        content = encoded(photo, kind)
        with Image.open(io.BytesIO(content)) as again:
            pile.good(b"as." + kind.lower().encode(), content, again.convert("RGB"))
    # An unknown ending, but a known signature.
    pile.good(
        b"a jpeg named.png",
        encoded(photo, "JPEG"),
        Image.open(io.BytesIO(encoded(photo, "JPEG"))).convert("RGB"),
    )
    cmyk = encoded(photo.convert("CMYK"), "JPEG")
    pile.good(b"cmyk.jpg", cmyk, Image.open(io.BytesIO(cmyk)).convert("RGB"))
    grey = photo.convert("L")
    pile.good(b"grey.png", encoded(grey, "PNG"), np.repeat(np.array(grey)[..., None], 3, 2))
    dots = np.array(photo.convert("1"))
    pile.good(
        b"bits.png", encoded(photo.convert("1"), "PNG"), np.repeat(dots[..., None], 3, 2) * 255
    )
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    red = np.broadcast_to(np.array([255, 0, 0]), (6, 8, 3))
    for kind in ("GIF", "TIFF", "PNG"):
        moving = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        pile.good(b"animated." + kind.lower().encode(), moving, red)

    deep = rng.integers(0, 65536, (9, 7), np.uint16)
    shallow = np.repeat(np.rint(deep / 257)[..., None], 3, 2)
    for kind in ("PNG", "TIFF"):
        pile.good(b"deep." + kind.lower().encode(), encoded(Image.fromarray(deep), kind), shallow)

    over = rng.integers(0, 256, (9, 7, 4), np.uint8)
    over[..., 3] = rng.choice([0, 255], (9, 7))
    on_white = np.where(over[..., 3:] == 0, 255, over[..., :3])
    pile.good(b"alpha.png", encoded(Image.fromarray(over), "PNG"), on_white)
    pile.good(b"alpha.tiff", encoded(Image.fromarray(over), "TIFF"), on_white)
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    half = [[[255 - (255 - c) * 51 // 255 for c in (10, 20, 30)], [200, 100, 50]]]
    pile.good(b"palette.png", encoded(palette, "PNG", transparency=b"\x33\xff"), half)

    for orientation in range(10):  # 0 and 9 are none
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind in ("JPEG", "PNG", "TIFF"):
            content = encoded(photo, kind, exif=exif)
            with Image.open(io.BytesIO(content)) as again:
                again.load()
                upright = ImageOps.exif_transpose(again).convert("RGB")
            pile.good(b"turned%d." % orientation + kind.lower().encode(), content, upright)
    spoiled = encoded(photo, "JPEG", exif=b"Exif\0\0MM\0\x2a\xff\xff\xff\xff" + b"\xff" * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pile.good(b"spoiled exif.jpg", spoiled, Image.open(io.BytesIO(spoiled)).convert("RGB"))


def _broken_files(pile):
    photo = Image.fromarray(noise(8, 60, 50))
    for kind in ("jpg", "png", "gif", "tiff", "webp", "bmp", ""):
        pile.broken(b"empty." + kind.encode(), b"")
    for kind in ("jpg", "png", "bmp"):
        pile.broken(b"text." + kind.encode(), b"this is no image, whatever its name says\n" * 9)
    for name, content in ((b"notes.txt", b"shopping"), (b"noise.bin", bytes(range(256)) * 40)):
        pile.broken(name, content)
    pile.broken(b"drawing.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    pile.broken(b".hidden.png", encoded(photo, "PNG"))
    for eighth in range(1, 8):
        for kind in ("JPEG", "PNG"):
            whole = encoded(photo, kind)
            name = b"cut%d." % eighth + kind.lower().encode()
            pile.broken(name, whole[: len(whole) * eighth // 8])
        for kind in ("GIF", "TIFF", "WEBP"):
            whole = encoded(photo, kind)
            name = b"cut%d." % eighth + kind.lower().encode()
            pile.path(name).write_bytes(whole[: len(whole) * eighth // 8])
            pile.either.add(name)
    rng = np.random.default_rng(3)
    for number in range(60):
        content = bytearray(
            encoded(photo, ("JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP")[number % 6])
        )
        for place in rng.integers(0, min(len(content), 200), 4):
            content[place] = rng.integers(256)
        name = b"flipped%02d.jpg" % number
        pile.path(name).write_bytes(content)
        pile.either.add(name)
    for side in (11_000, 15_000, 100_000, 2**31 - 1):
        pile.broken(b"bomb%d.png" % side, declared_png(side, side))
    pile.broken(b"float.tiff", encoded(Image.new("F", (4, 4), 0.5), "TIFF"))


def _special_files(pile, monkeypatch):
    os.mkfifo(pile.root / "pipe.jpg")
    os.mkfifo(pile.root / "pipe")
    monkeypatch.chdir(pile.root)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.jpg")
    (pile.root / "loop.jpg").symlink_to("pool.jpg")
    (pile.root / "pool.jpg").symlink_to("loop.jpg")
    (pile.root / "dangling.jpg").symlink_to("nowhere.jpg")
    (pile.root / "deep" / "up.jpg").symlink_to("..")
    (pile.root / "around").symlink_to(".")
    (pile.root / "device.jpg").symlink_to("/dev/zero")
    pile.bad |= {b"pipe.jpg", b"pipe", b"socket.jpg", b"loop.jpg", b"pool.jpg", b"dangling.jpg"}
    pile.bad |= {b"deep/up.jpg", b"around", b"device.jpg"}
    (pile.root / "link.png").symlink_to("plain.png")
    pile.pixels[b"link.png"] = pile.pixels[b"plain.png"]


@pytest.fixture(scope="session")
def browser_program():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    program = program or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed")
    return program


@pytest.fixture(scope="module")
def chromium(browser_program, tmp_path_factory):
    from tests.browser import Browser

    browser = Browser(browser_program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium):
    """The browser without tabs of other tests, which would go on asking servers that are gone."""
    yield chromium
    chromium.close_tabs()
