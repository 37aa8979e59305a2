"""Batteries over losses, metrics and models: what each must have, each a function that tries it.

A property takes a subject and returns, or raises ``Broken`` or ``DoesNotApply`` with the reason in
one line. ``judge`` tries one. What holds for losses and for metrics is one function.
"""

import torch

from ltr.battery import calls, items, metrics, models, ranks
from ltr.battery.metrics import MetricSubject
from ltr.battery.models import ModelSubject
from ltr.battery.ranks import GOES_TO
from ltr.battery.subject import Subject
from ltr.battery.verdict import (
    DOES_NOT_APPLY,
    FAILS,
    HOLDS,
    Broken,
    DoesNotApply,
    Property,
    Verdict,
    judge,
    title,
)

__all__ = [
    "DOES_NOT_APPLY",
    "FAILS",
    "GOES_TO",
    "HOLDS",
    "LOSS_PROPERTIES",
    "METRIC_PROPERTIES",
    "MODEL_PROPERTIES",
    "Broken",
    "DoesNotApply",
    "MetricSubject",
    "ModelSubject",
    "Property",
    "Subject",
    "Verdict",
    "judge",
    "title",
]

# each in the order in which they are reported
LOSS_PROPERTIES: tuple[Property, ...] = (
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
    calls.the_second_derivative_is_right_or_refused,
    calls.there_is_something_to_learn,
    calls.following_the_gradient_lowers_the_loss,
    calls.a_batch_without_lists_to_count_can_be_trained_on,
    items.degenerate_lists(torch.float64),
    items.degenerate_lists(torch.float32),
    items.degenerate_lists(torch.bfloat16),
    items.a_list_of_no_items_is_worth_0,
    items.lists_of_any_size_are_defined,
    calls.inputs_are_left_as_they_are,
    calls.the_same_call_gives_the_same_value,
    calls.what_is_drawn_comes_from_the_generator,
    calls.the_layout_in_memory_means_nothing,
    calls.float64_stays_float64_and_the_rest_becomes_float32,
)

METRIC_PROPERTIES: tuple[Property, ...] = (
    calls.there_is_one_value_per_list,
    metrics.values_are_between_the_bounds,
    metrics.no_order_is_better_than_that_of_the_labels,
    metrics.a_monotone_transform_of_the_scores_changes_nothing,
    items.padding_is_never_read,
    items.more_padding_and_its_place_change_nothing,
    items.lists_do_not_see_each_other,
    items.a_list_alone_is_worth_what_it_is_in_a_batch,
    items.the_order_of_the_items_means_nothing,
    ranks.tied_scores_stand_in_file_order_or_share_ranks,
    metrics.averaged_ties_are_the_mean_over_all_orders,
    metrics.the_cutoff_is_honoured,
    ranks.a_cutoff_beyond_the_list_is_none,
    metrics.an_empty_list_counts_what_the_convention_says,
    metrics.labels_below_relevant_do_not_count,
    metrics.a_table_of_gains_is_looked_up,
    metrics.the_number_of_grades_is_read,
    metrics.a_score_of_nan_makes_its_list_nan_and_no_other,
    items.degenerate_lists(torch.float64),
    items.degenerate_lists(torch.float32),
    items.lists_of_any_size_are_defined,
    calls.inputs_are_left_as_they_are,
    calls.the_same_call_gives_the_same_value,
    metrics.nothing_is_drawn,
    calls.the_layout_in_memory_means_nothing,
    metrics.float64_is_not_rounded,
)

MODEL_PROPERTIES: tuple[Property, ...] = (
    models.there_is_one_score_per_item,
    models.padding_is_never_read,
    models.more_padding_and_its_place_change_nothing,
    models.lists_do_not_see_each_other,
    models.a_list_alone_is_scored_as_in_a_batch,
    models.an_item_is_scored_by_its_own_features_alone,
    models.the_order_of_the_items_means_nothing,
    models.the_given_ranks_mean_nothing,
    models.the_gradient_is_finite_and_reaches_every_parameter,
    models.lists_of_any_size_are_scored,
    models.inputs_are_left_as_they_are,
    models.evaluation_is_deterministic,
    models.a_seed_gives_the_model,
    models.the_state_dict_holds_the_model,
    models.a_resumed_training_gives_the_same_weights,
)
