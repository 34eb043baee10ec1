"""The pages, in the order of the index."""

from __future__ import annotations

from tests.research.gallery import classes, digits, hundred, networks, phone, photographs
from tests.research.gallery import pull_request as pull
from tests.research.gallery.gallery import Page

_ALL = (
    Page("photos", "ImageNet photos: noise, a sensor, JPEG, fog", photographs.kinds),
    Page("file", "Noise in the file, and noise at the input", photographs.file_or_input),
    Page("phone", "The noise of a phone, and the kind that is nearest", phone.phone),
    Page("networks", "ResNet20 beside networks trained to resist", networks.networks),
    Page("pull-request", "A gate stops a pull request", pull.gate),
    Page("bias", "Two data sets, class by class", classes.bias),
    Page("cifar100", "A hundred classes", hundred.hundred),
    Page("rare", "Failures that happen once in a million", digits.rare),
)
PAGES = {page.name: page for page in _ALL}
