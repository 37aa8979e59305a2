"""Faults planted in right losses: the property that is named catches each, and passes the right."""

from collections.abc import Callable

import planted_faults as plant
import pytest
from torch import Tensor

from ltr.battery import FAILS, GOES_TO, HOLDS, LOSS_PROPERTIES, Subject, judge
from ltr.losses import (
    approx_ndcg_loss,
    lambdarank_loss,
    listmle_loss,
    listnet_loss,
    mse_loss,
    neural_ndcg_loss,
    plrank_loss,
    ranknet_loss,
)

pytestmark = pytest.mark.slow

Plant = Callable[[pytest.MonkeyPatch], Callable[..., Tensor]]

BY_NAME = {prop.__name__: prop for prop in LOSS_PROPERTIES}


# the fault: the right version, the property that catches it, and a part of what it says
FIVE = {
    plant.padding_read: (listnet_loss, "padding_is_never_read", "padding is read"),
    plant.k_ignored: (neural_ndcg_loss, "the_cutoff_is_honoured", "k is ignored"),
    plant.ideal_not_cut: (
        neural_ndcg_loss,
        "the_best_order_is_the_bound_at_every_cutoff",
        "the ideal is not that of k",
    ),
    plant.lists_coupled: (
        approx_ndcg_loss,
        "lists_do_not_see_each_other",
        "when the scores of the lists beside it became",
    ),
    plant.ties_reversed: (
        lambdarank_loss,
        "tied_scores_stand_in_file_order_or_share_ranks",
        "wrong tie rule",
    ),
}
MORE = {
    plant.label_ties_in_file_order: (
        listmle_loss,
        "the_order_of_the_items_means_nothing",
        "when the items were given in another order",
    ),
    plant.temperature_in_the_wrong_place: (
        neural_ndcg_loss,
        "the_sharp_limit_is_minus_the_metric",
        "from minus ndcg at k=None",
    ),
    plant.input_changed: (
        mse_loss,
        "inputs_are_left_as_they_are",
        "the labels were changed in place",
    ),
    plant.nan_at_ties: (
        listnet_loss,
        "degenerate_lists_are_defined_in_float64",
        "the value is nan for a list all tied in float64",
    ),
    plant.global_generator: (
        listmle_loss,
        "what_is_drawn_comes_from_the_generator",
        "torch's own generator was used although another was given",
    ),
    plant.generator_without_a_knob: (
        listmle_loss,
        "what_is_drawn_comes_from_the_generator",
        "it draws from global state",
    ),
    plant.one_number: (
        mse_loss,
        "there_is_one_value_per_list",
        "returned shape [] on 3 lists of 8 places, not one value per list, [3]",
    ),
    plant.no_float64: (
        mse_loss,
        "float64_stays_float64_and_the_rest_becomes_float32",
        "digits are lost inside",
    ),
    plant.detached: (mse_loss, "there_is_something_to_learn", "the values have no graph"),
    plant.gradient_not_of_the_value: (
        ranknet_loss,
        "the_gradient_agrees_with_finite_differences",
        "Jacobian mismatch",
    ),
    plant.slopes_as_constants: (
        mse_loss,
        "the_second_derivative_is_right_or_refused",
        "changed from -0.224667967 to 0 from the slope of the gradient",
    ),
    plant.estimate_doubled: (
        plrank_loss,
        "the_gradient_agrees_with_finite_differences",
        "the mean over 5000 draws is",
    ),
    plant.nothing_to_learn: (
        mse_loss,
        "there_is_something_to_learn",
        "the gradient is 0 everywhere",
    ),
    plant.nan_on_no_items: (
        mse_loss,
        "a_list_of_no_items_is_worth_0",
        "a list of no items has the value nan",
    ),
    plant.rises: (
        listnet_loss,
        "following_the_gradient_lowers_the_loss",
        "a step against the gradient raised a value by",
    ),
    plant.any_k_taken: (neural_ndcg_loss, "a_cutoff_below_1_is_refused", "k=0 was taken"),
    plant.k_beyond_the_list_is_an_error: (
        neural_ndcg_loss,
        "a_cutoff_beyond_the_list_is_none",
        "crashed on 3 lists of 8 places: RuntimeError: selected index k out of range",
    ),
    plant.drawn_but_in_file_order: (
        listmle_loss,
        "the_order_of_the_items_means_nothing_on_average_over_draws",
        "the mean of 400 draws",
    ),
    plant.mean_over_places: (
        mse_loss,
        "more_padding_and_its_place_change_nothing",
        "with 0 more places of padding in front and 9 behind",
    ),
    plant.mean_over_the_batch_too: (
        mse_loss,
        "a_list_alone_is_worth_what_it_is_in_a_batch",
        "when list 0 stood alone",
    ),
    plant.ideal_of_0: (
        neural_ndcg_loss,
        "a_batch_without_lists_to_count_can_be_trained_on",
        "the gradient is nan of a batch without lists to count",
    ),
    plant.epsilon_of_float64: (
        mse_loss,
        "degenerate_lists_are_defined_in_float32",
        "the value is nan for a list of no items in float32",
    ),
    plant.largest_of_none: (
        listnet_loss,
        "lists_of_any_size_are_defined",
        "crashed on 2 lists of 0 places: IndexError",
    ),
    plant.memory_of_calls: (
        mse_loss,
        "the_same_call_gives_the_same_value",
        "at a second call with the same seed",
    ),
    plant.views_only: (
        mse_loss,
        "the_layout_in_memory_means_nothing",
        "crashed on 3 lists of 8 places: RuntimeError: view size is not compatible",
    ),
}


@pytest.mark.parametrize(
    "fault", FIVE | MORE, ids=lambda fault: f"{fault.__name__}-by-{(FIVE | MORE)[fault][1]}"
)
def test_planted_fault_is_caught(fault: Plant) -> None:
    right, prop, seen = (FIVE | MORE)[fault]
    metric = GOES_TO.get(right.__name__)
    verdict = judge(BY_NAME[prop], Subject(right, metric=metric))
    assert verdict.outcome == HOLDS, verdict.seen
    with pytest.MonkeyPatch.context() as monkeypatch:
        wrong = fault(monkeypatch)
        verdict = judge(BY_NAME[prop], Subject(wrong, metric=metric))
    assert verdict.outcome == FAILS
    assert seen in verdict.seen
    assert "\n" not in verdict.seen
