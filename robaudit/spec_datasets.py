"""What data does the user ask for: the dataset section of a spec, a model for each kind (imports no torch)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from robaudit.spec_fields import Count, Part, Positive, Whole

DATASET_KINDS = ("npz", "images", "manifest", "torchvision", "digits", "python")


class SampleSpec(Part):
    """A seeded random subset, in the order of the data set."""

    size: Count
    seed: Whole = 0


class BaseDatasetSpec(Part):
    """What all kinds of data sets share."""

    limit: Count | None = Field(None, description="audit the first N samples")
    sample: SampleSpec | None = Field(None, description="audit a random subset instead: {size: 1000, seed: 0}")
    class_names: tuple[str, ...] | None = Field(None, description="names by class index; class folders map by these, else sorted")

    @model_validator(mode="after")
    def _one_selection(self) -> BaseDatasetSpec:
        if self.limit is not None and self.sample is not None:
            raise ValueError("limit and sample exclude each other; keep one")
        return self


class NpzSpec(BaseDatasetSpec):
    """Arrays in a NumPy .npz file."""

    kind: Literal["npz"]
    path: str
    images_key: str = "images"
    labels_key: str | None = Field("labels", description="null: no labels")
    layout: Literal["nchw", "nhwc", "nhw"] | None = Field(None, description="guessed from the shape when absent")
    scale: Positive | None = Field(None, description="pixels are divided by it; uint8: 255 when absent, float: 1")


class ImageOptions(BaseDatasetSpec):
    """How image files become tensors."""

    resize: Count | tuple[Count, Count] | None = Field(None, description="shorter side, or [height, width]")
    crop: Count | tuple[Count, Count] | None = Field(None, description="centre crop, after the resize")
    channels: Literal[1, 3] = 3


class ImagesSpec(ImageOptions):
    """A folder with one folder of images for each class."""

    kind: Literal["images"]
    path: str


class ManifestSpec(ImageOptions):
    """A CSV file with columns path, label and optionally id; paths are relative to the CSV file."""

    kind: Literal["manifest"]
    path: str


class TorchvisionSpec(ImageOptions):
    """A data set of torchvision.datasets by its name."""

    kind: Literal["torchvision"]
    name: str = Field(description="class name in torchvision.datasets, for example CIFAR10")
    root: str
    split: str | None = Field("test", description="test or train (or what the data set's own split option takes)")
    download: bool = False
    options: dict[str, Any] = Field(default_factory=dict, description="further keyword arguments of the data set")
    channels: Literal[1, 3] | None = None  # type: ignore[assignment]


class DigitsSpec(BaseDatasetSpec):
    """scikit-learn's handwritten digits, 1 x 8 x 8, 10 classes: embedded, needs no file."""

    kind: Literal["digits"]
    split: Literal["train", "test", "all"] = "test"


class PythonDatasetSpec(BaseDatasetSpec):
    """A Python function that returns an indexable collection of (pixels, label) or (pixels, label, id); needs --trust."""

    kind: Literal["python"]
    target: str = Field(description="package.module:function")
    options: dict[str, Any] = Field(default_factory=dict)


DatasetSpec = Annotated[NpzSpec | ImagesSpec | ManifestSpec | TorchvisionSpec | DigitsSpec | PythonDatasetSpec, Field(discriminator="kind")]
