"""One battery over every loss: properties that a loss must have, each a function that tries one.

A property takes a ``Subject`` and returns, or raises ``Broken`` or ``DoesNotApply`` with the reason
in one line. ``judge`` tries one of ``PROPERTIES``; ``scripts/check_loss.py`` prints the verdicts on
any loss.
"""

from ltr.battery import calls, items, ranks
from ltr.battery.ranks import GOES_TO
from ltr.battery.subject import (
    DOES_NOT_APPLY,
    FAILS,
    HOLDS,
    Broken,
    DoesNotApply,
    Property,
    Subject,
    Verdict,
    judge,
    title,
)

__all__ = [
    "DOES_NOT_APPLY",
    "FAILS",
    "GOES_TO",
    "HOLDS",
    "PROPERTIES",
    "Broken",
    "DoesNotApply",
    "Property",
    "Subject",
    "Verdict",
    "judge",
    "title",
]

# in the order in which they are reported
PROPERTIES: tuple[Property, ...] = (
    calls.there_is_one_value_per_list,
    items.padding_is_never_read,
    items.more_padding_and_its_place_change_nothing,
    items.lists_do_not_see_each_other,
    items.a_list_alone_is_worth_what_it_is_in_a_batch,
    items.the_order_of_the_items_means_nothing,
    items.the_order_of_the_items_means_nothing_on_average_over_draws,
    ranks.tied_scores_stand_in_file_order_or_share_ranks,
    ranks.a_cutoff_below_1_is_refused,
    ranks.a_cutoff_beyond_the_list_is_none,
    ranks.the_cutoff_is_honoured,
    ranks.the_best_order_is_the_bound_at_every_cutoff,
    ranks.the_sharp_limit_is_minus_the_metric,
    calls.the_gradient_agrees_with_finite_differences,
    calls.there_is_something_to_learn,
    calls.following_the_gradient_lowers_the_loss,
    calls.a_batch_without_lists_to_count_can_be_trained_on,
    items.degenerate_lists_are_defined_in_float64,
    items.degenerate_lists_are_defined_in_float32,
    items.degenerate_lists_are_defined_in_bfloat16,
    items.a_list_of_no_items_is_worth_0,
    items.lists_of_any_size_are_defined,
    calls.inputs_are_left_as_they_are,
    calls.the_same_call_gives_the_same_value,
    calls.what_is_drawn_comes_from_the_generator,
    calls.the_layout_in_memory_means_nothing,
    calls.float64_stays_float64_and_the_rest_becomes_float32,
)
