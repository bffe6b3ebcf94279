"""Explanations of plans for tests that look for a sentence, which may be spread over lines."""

import re


def unwrapped(text):
    """An explanation with a line for each label and each item of a list, however long."""
    return re.sub(r"\n {6,}", " ", text)
