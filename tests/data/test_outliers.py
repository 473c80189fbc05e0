import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import norm

from anedl.data import outliers
from anedl.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from anedl.data.dataset import ArrayImages, Dataset, LabelledImages
from anedl.data.outliers import (
    NOISE,
    SAME_KIND,
    NoiseImages,
    default_outliers,
    load_outliers,
    named_outliers,
    outlier_classes,
)
from anedl.data.settings import SETTINGS, get_setting
from anedl.errors import ConfigError, DataError

DIGITS, CIFAR10, CIFAR100, IMAGENET = map(
    get_setting, ("digits", "cifar10-6/50", "cifar100-55/50", "imagenet30-20/130")
)


def all_of(images):
    return torch.cat(list(images.batches(64)))


def cifar_like(name, root=None):
    """Two test images a class, each pixel of them its label."""
    names = {"cifar10": CIFAR10_CLASSES, "cifar100": CIFAR100_CLASSES}[name]
    labels = np.tile(np.arange(len(names)), 2)
    pixels = np.broadcast_to(labels[:, None, None, None], (len(labels), 32, 32, 3))
    part = LabelledImages(ArrayImages(pixels.astype(np.uint8)), labels)
    return Dataset(
        name, names, LabelledImages(ArrayImages(part.images.pixels[:1]), labels[:1]), part
    )


@pytest.fixture
def cifars(monkeypatch):
    monkeypatch.setattr(outliers, "load_dataset", cifar_like)


def test_every_listed_class_exists():
    assert set(SAME_KIND) <= set(CIFAR100_CLASSES)
    assert {name for names in SAME_KIND.values() for name in names} <= set(CIFAR10_CLASSES)
    assert all(SAME_KIND.values())


def test_what_is_left_of_each_set_shares_nothing_with_the_other():
    left10 = outlier_classes("cifar10", "cifar100")
    left100 = outlier_classes("cifar100", "cifar10")
    assert left10 == ("bird", "deer", "frog", "horse", "ship")
    assert len(left100) == 86
    assert not set(left100) & set(SAME_KIND)
    for hundred, tens in SAME_KIND.items():
        assert hundred not in left100
        assert not set(tens) & set(left10)
    # Names that are found in both sets' words, whatever the list says.
    assert not {"bus", "pickup_truck", "streetcar", "leopard", "wolf"} & set(left100)


@pytest.mark.parametrize(
    ("name", "setting", "left"), [("cifar10", CIFAR100, 5), ("cifar100", CIFAR10, 86)]
)
def test_only_images_of_classes_that_are_left_come_out(cifars, name, setting, left):
    images = load_outliers(name, setting)
    labels = all_of(images)[:, 0, 0, 0].tolist()
    names = cifar_like(name).class_names
    assert len(images) == len(labels) == 2 * left
    assert {names[label] for label in labels} == set(outlier_classes(name, setting.dataset))


def test_photographs_become_grey_and_small_for_the_digits(cifars):
    made = all_of(load_outliers("cifar10", DIGITS))
    assert made.shape == (20, 1, 8, 8)
    assert made[:, 0, 3, 3].tolist() == [*range(10)] * 2


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_noise_has_the_shape_of_the_setting(setting):
    for name in NOISE:
        images = load_outliers(name, setting)
        first = next(images.batches(2))
        assert len(images) == 2000
        assert first.shape == (2, len(setting.mean), setting.image_size, setting.image_size)
        assert first.dtype == torch.uint8


@pytest.mark.parametrize("kind", NOISE)
def test_noise_is_the_same_every_time(kind):
    few, many = NoiseImages(kind, 3, 32, 3), NoiseImages(kind, 5000, 32, 3)
    assert np.array_equal(many[2], few[2])
    assert not np.array_equal(few[1], few[2])
    assert not np.array_equal(
        NoiseImages(NOISE[0], 1, 32, 3)[0], NoiseImages(NOISE[1], 1, 32, 3)[0]
    )
    for threads in (0, 3):
        made = all_of(load_outliers(kind, DIGITS, threads=threads))
        assert np.array_equal(made[7, 0].numpy(), NoiseImages(kind, 8, 8, 1)[7][:, :, 0])


def test_noise_is_these_bytes_for_good():
    """Figures of other machines and years can be compared only while these stay."""
    assert NoiseImages("uniform-noise", 1, 8, 1)[0].ravel()[:6].tolist() == [
        73,
        214,
        39,
        71,
        94,
        20,
    ]
    assert NoiseImages("gaussian-noise", 1, 8, 1)[0].ravel()[:6].tolist() == [
        123,
        67,
        187,
        23,
        185,
        215,
    ]


def test_noise_of_large_images_is_not_smoothed():
    image = next(load_outliers("uniform-noise", IMAGENET).batches(1)).double()
    neighbours = np.corrcoef(image[..., :-1].flatten(), image[..., 1:].flatten())[0, 1]
    assert abs(neighbours) < 0.01


def test_noise_follows_its_distribution():
    uniform = np.stack([NoiseImages("uniform-noise", 300, 32, 3)[i] for i in range(300)]).ravel()
    counts = np.bincount(uniform, minlength=256)
    chi_squared = ((counts - uniform.size / 256) ** 2).sum() / (uniform.size / 256)
    assert 150 < chi_squared < 370  # 255 ± 5 standard deviations
    gaussian = np.stack([NoiseImages("gaussian-noise", 300, 32, 3)[i] for i in range(300)]).ravel()
    edges = np.concatenate([[-np.inf], np.arange(255) + 0.5, [np.inf]])
    due = np.diff(norm(127.5, 63.75).cdf(edges)) * gaussian.size
    chi_squared = ((np.bincount(gaussian, minlength=256) - due) ** 2 / due).sum()
    assert 150 < chi_squared < 400  # the table's 2¹⁶ steps add a little


@pytest.fixture
def odd_folder(tmp_path):
    """Grey, transparent, palette and 16-bit images of several sizes, some in folders."""
    rng = np.random.default_rng(0)
    (tmp_path / "inner").mkdir()
    Image.fromarray(rng.integers(0, 256, (20, 31), dtype=np.uint8)).save(tmp_path / "grey.png")
    alpha = rng.integers(0, 256, (9, 5, 4), dtype=np.uint8)
    Image.fromarray(alpha).save(tmp_path / "inner" / "alpha.png")
    Image.new("RGB", (40, 40), (255, 0, 0)).convert("P").save(tmp_path / "inner" / "red.png")
    deep = np.full((12, 12), 65535, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "white.png")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


@pytest.mark.parametrize("setting", [DIGITS, CIFAR10, IMAGENET], ids=lambda s: s.name)
def test_a_folder_of_odd_images(odd_folder, setting):
    made = all_of(load_outliers(f"folder:{odd_folder}", setting))
    channels, side = len(setting.mean), setting.image_size
    assert made.shape == (4, channels, side, side)  # grey, alpha, red, white
    middle = made[:, :, side // 2, side // 2]
    assert middle[3].tolist() == [255] * channels
    assert middle[2].tolist() == ([76] if channels == 1 else [255, 0, 0])  # 0.299 × 255
    if channels == 3:
        assert torch.equal(made[0, 0], made[0, 2])


@pytest.mark.parametrize(
    ("name", "setting", "error", "said"),
    [
        ("cifar1000", CIFAR10, ConfigError, "did you mean cifar100"),
        ("cifar10", CIFAR10, ConfigError, "its unknown classes are in the pool"),
        ("cifar100", IMAGENET, ConfigError, "folder:PATH"),
        ("folder:", DIGITS, ConfigError, "names no folder"),
        ("folder:/no/such/place", DIGITS, DataError, "/no/such/place: no such folder"),
    ],
)
def test_what_cannot_be_had_is_told(name, setting, error, said):
    with pytest.raises(error, match=said):
        named_outliers(["uniform-noise", name], setting)


def test_a_folder_without_images(tmp_path):
    with pytest.raises(DataError, match="no images here"):
        load_outliers(f"folder:{tmp_path}", DIGITS)


def test_absent_cifar_is_an_error_only_where_it_is_asked_for(tmp_path):
    with pytest.raises(DataError, match="anedl data fetch cifar10`"):
        named_outliers(["cifar10"], CIFAR100, tmp_path)
    assert list(default_outliers(CIFAR100, tmp_path)) == list(NOISE)
    (tmp_path / "cifar-10-batches-bin").mkdir()  # begun, not finished
    assert list(default_outliers(CIFAR100, tmp_path)) == list(NOISE)


def test_the_other_cifar_is_taken_where_it_is(cifars, tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    assert list(default_outliers(CIFAR100, tmp_path)) == [*NOISE, "cifar10"]
    assert list(default_outliers(CIFAR10, tmp_path)) == list(NOISE)
    assert list(default_outliers(DIGITS, tmp_path)) == list(NOISE)


def test_none_stands_alone():
    assert named_outliers(["none"], DIGITS) == {}
    assert list(named_outliers(["uniform-noise", "uniform-noise"], DIGITS)) == ["uniform-noise"]
    with pytest.raises(ConfigError, match="stands alone"):
        named_outliers(["none", "uniform-noise"], DIGITS)
