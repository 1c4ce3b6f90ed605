"""Whether a feature extractor fits the data of a score, and what metrics can read of both."""

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs
from paragan.core.printable import counted, size_text
from paragan.core.source import Source
from paragan.features.base.extractor import CLASSES, OTHER_CLASSES, FeatureExtractor

_RELIABLE = 0.95  # a score by an extractor of lower accuracy is printed with a warning


def check_accepted(extractor: FeatureExtractor, train: Source) -> None:
    """Raise `ConfigError` if the images have another shape, or other classes, than the extractor's."""
    classes = len(train.class_names)
    classifies = extractor.num_classes is not None and extractor.task == CLASSES and classes > 1
    if not extractor.accepts(train.shape) or (classifies and classes != extractor.num_classes):
        expected = "" if extractor.num_classes is None else f" in {counted(extractor.num_classes, 'class')}"
        raise ConfigError(
            f"evaluation.features={extractor.name} expects images of {size_text(extractor.input_shape)}{expected}, "
            f"but the data has {size_text(train.shape)} in {counted(classes, 'class')}; use evaluation.features=auto"
        )


def available_needs(train: Source, extractor: FeatureExtractor | None = None) -> frozenset[Needs]:
    """Return what metrics can read about images of this data; None: by any extractor."""
    needs = {Needs.FEATURES, Needs.IMAGES}
    if len(train.class_names) > 1:
        needs |= {Needs.LABELS}
    if extractor is None or extractor.num_classes is not None:
        needs |= {Needs.LOGITS}
    if extractor is None or classifies_data(extractor):
        needs |= {Needs.CLASS_LOGITS}
    return frozenset(needs)


def classifies_data(extractor: FeatureExtractor) -> bool:
    """Return whether the logits are over the classes of the data, or of its rotations."""
    return extractor.num_classes is not None and extractor.task != OTHER_CLASSES


def accuracy_warning(extractor: FeatureExtractor, accuracy: float | None, num_real: int) -> str | None:
    """Return a warning for an extractor of low accuracy. num_real: held-out images that are scored, 0 for too few.

    Of a classifier of rotations only an accuracy near chance is low: its features can be good although rotations of
    these images are hard to tell apart.
    """
    if accuracy is None or accuracy >= _RELIABLE:
        return None
    if extractor.task != CLASSES:
        return _rotation_warning(extractor, accuracy)
    name = "the classifier trained on your images" if extractor.name == "judge" else f"the extractor {extractor.name}"
    few = "too few images are held out for scores of real ones to compare with; look at the samples"
    means = "compare its scores with those of real images, in brackets" if num_real else few
    return f"warning: score: {name} is right on {accuracy:.1%} of held-out images, so its scores are rough; {means}"


def _rotation_warning(extractor: FeatureExtractor, accuracy: float) -> str | None:
    assert extractor.num_classes is not None
    if accuracy >= 1.5 / extractor.num_classes:
        return None
    return (
        "warning: score: means little for these images: without classes, the classifier learns by how much an image "
        f"is rotated, and is right on {accuracy:.1%} of held-out images ({1 / extractor.num_classes:.0%} by chance); "
        "look at the samples, or sort the images into a folder for each class"
    )


def knows_other_images(extractor: FeatureExtractor, accuracy: float | None) -> bool:
    """Return whether a packaged classifier is right on less than twice what chance gives: it was trained on others."""
    if extractor.task != CLASSES or extractor.num_classes is None or extractor.name == "judge" or accuracy is None:
        return False
    return accuracy < 2 / extractor.num_classes
