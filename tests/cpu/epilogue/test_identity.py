"""Identity of epilogues that warptile makes of a caller's: what a linear layer adds the bias to."""

import warptile as wt
from warptile.epilogue import expressions
from warptile.epilogue.identity import identity
from warptile.linear_call import _linear_epilogue


def scaled_by(factor):
    return lambda acc: wt.gelu(acc) * factor


def test_a_linear_layers_epilogue_is_known_where_the_callers_is():
    one, same, other = (identity(_linear_epilogue(scaled_by(each), True, False)) for each in (2.0, 2.0, 3.0))
    assert one is not None
    assert one == same != other
    assert one != identity(scaled_by(2.0)), "the bias is added"


def test_whether_a_bias_is_added_and_rows_are_joined_is_part_of_it():
    epilogue = scaled_by(2.0)
    assert (
        len({identity(_linear_epilogue(epilogue, *flags)) for flags in ((True, False), (True, True), (False, True))})
        == 3
    )


def test_what_cannot_be_known_stays_so():
    box = [2.0]
    assert identity(lambda acc: acc * box[0]) is None
    assert identity(_linear_epilogue(lambda acc: acc * box[0], True, True)) is None


def test_a_number_that_changes_later_changes_the_identity():
    factor = 2.0

    def epilogue(acc):
        return acc * factor

    made = _linear_epilogue(epilogue, True, False)
    before = identity(made)
    factor = 3.0
    assert identity(made) != before


def test_functions_of_warptiles_own_module_are_known():
    assert identity(lambda acc: expressions.gelu(acc, "tanh")) is not None
