"""Every property of the battery, in the order in which they are reported."""

from ltr.battery.batches import (
    a_list_alone_is_worth_what_it_is_in_a_batch,
    lists_do_not_see_each_other,
    the_order_of_the_items_means_nothing,
    the_order_of_the_items_means_nothing_on_average_over_draws,
)
from ltr.battery.calls import (
    float64_stays_float64_and_the_rest_becomes_float32,
    inputs_are_left_as_they_are,
    the_layout_in_memory_means_nothing,
    the_same_call_gives_the_same_value,
    there_is_one_value_per_list,
    what_is_drawn_comes_from_the_generator,
)
from ltr.battery.cutoff import (
    a_cutoff_below_1_is_refused,
    a_cutoff_beyond_the_list_is_none,
    the_best_order_is_the_bound_at_every_cutoff,
    the_cutoff_is_honoured,
)
from ltr.battery.degenerate import (
    a_list_of_no_items_is_worth_0,
    degenerate_lists_are_defined_in_bfloat16,
    degenerate_lists_are_defined_in_float32,
    degenerate_lists_are_defined_in_float64,
    lists_of_any_size_are_defined,
)
from ltr.battery.findings import Property
from ltr.battery.gradients import (
    a_batch_without_lists_to_count_can_be_trained_on,
    following_the_gradient_lowers_the_loss,
    the_gradient_agrees_with_finite_differences,
    there_is_something_to_learn,
)
from ltr.battery.limits import the_sharp_limit_is_minus_the_metric
from ltr.battery.padding import more_padding_and_its_place_change_nothing, padding_is_never_read
from ltr.battery.ties import tied_scores_stand_in_file_order_or_share_ranks

PROPERTIES: tuple[Property, ...] = (
    there_is_one_value_per_list,
    padding_is_never_read,
    more_padding_and_its_place_change_nothing,
    lists_do_not_see_each_other,
    a_list_alone_is_worth_what_it_is_in_a_batch,
    the_order_of_the_items_means_nothing,
    the_order_of_the_items_means_nothing_on_average_over_draws,
    tied_scores_stand_in_file_order_or_share_ranks,
    a_cutoff_below_1_is_refused,
    a_cutoff_beyond_the_list_is_none,
    the_cutoff_is_honoured,
    the_best_order_is_the_bound_at_every_cutoff,
    the_sharp_limit_is_minus_the_metric,
    the_gradient_agrees_with_finite_differences,
    there_is_something_to_learn,
    following_the_gradient_lowers_the_loss,
    a_batch_without_lists_to_count_can_be_trained_on,
    degenerate_lists_are_defined_in_float64,
    degenerate_lists_are_defined_in_float32,
    degenerate_lists_are_defined_in_bfloat16,
    a_list_of_no_items_is_worth_0,
    lists_of_any_size_are_defined,
    inputs_are_left_as_they_are,
    the_same_call_gives_the_same_value,
    what_is_drawn_comes_from_the_generator,
    the_layout_in_memory_means_nothing,
    float64_stays_float64_and_the_rest_becomes_float32,
)
