"""Figures with a choice: every state is drawn, and the script shows the one that the controls name.

Without the script all states are there, one below the other, each with its heading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.figure import joined


@dataclass(frozen=True)
class Choice:
    """One thing to choose.

    Attributes:
        label: of its control.
        options: texts of the values, in order; state keys have their numbers.
        slider: a slider with the text beside it, not a list.
    """

    label: str
    options: tuple[str, ...]
    slider: bool = False

    def html(self, first: int) -> Markup:
        """The control, at option ``first``."""
        if self.slider:
            return Markup(
                '<label><span>{}: <output>{}</output></span><input type="range" data-part min="0" max="{}" value="{}" '
                'data-texts="{}" aria-valuetext="{}"></label>'
            ).format(
                self.label, self.options[first], len(self.options) - 1, first, "|".join(self.options),
                self.options[first],
            )  # fmt: skip
        options = joined(
            Markup('<option value="{}"{}>{}</option>').format(i, Markup(" selected" if i == first else ""), text)
            for i, text in enumerate(self.options)
        )
        return Markup("<label><span>{}</span><select data-part>{}</select></label>").format(self.label, options)


def with_choices(
    kind: str,
    choices: Sequence[Choice],
    states: Sequence[tuple[tuple[int, ...], Markup]],
    first: tuple[int, ...],
    more: Markup | str = "",
) -> Markup:
    """The picture of a figure.

    Args:
        kind: what the script makes of it.
        choices: the controls.
        states: by the number of each choice's option, what is drawn.
        first: the state that is shown at the beginning.
        more: controls that follow.
    """
    controls = joined(choice.html(number) for choice, number in zip(choices, first, strict=True))
    sections = joined(
        Markup('<section class="wt-state" data-state="{}">\n{}</section>\n').format(" ".join(map(str, key)), content)
        for key, content in states
    )
    return Markup('<div class="wt-states" data-wt="{}">\n<div class="wt-controls" hidden>{}{}</div>\n{}</div>').format(
        kind, controls, more, sections
    )
