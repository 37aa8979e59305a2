"""``scripts/search.py``'s work: begin or go on with a search, and write what it found."""

import os
import shlex
from contextlib import suppress
from pathlib import Path

import optuna
from omegaconf import OmegaConf
from tabulate import tabulate

from ltr.experiment.identity import code_digest
from ltr.search.best_file import best_path, check_free, command_of, data_of, write_best
from ltr.search.check import check_space, digests
from ltr.search.claims import begin, finished, release_dead
from ltr.search.order import Order
from ltr.search.plan import Plan, make_plan, settings_of
from ltr.search.plot import draw_history
from ltr.search.report import summary, write_trials
from ltr.search.space import as_text
from ltr.search.study import folder_of, is_there, open_study, settle_identity, study_lock
from ltr.search.watch import Watch, best_of
from ltr.search.work import work, work_at_once
from ltr.training.device import pick_device
from ltr.training.interruption import Interrupted


def search(order: Order) -> bool:
    """Search, print what was found and keep it; return whether all trials were finished.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything is trained.
        Interrupted, KeyboardInterrupt: the user asked to stop; the same order goes on.
    """
    plan = make_plan(order)
    path, folder = best_path(order, plan), folder_of(order, plan)
    check_space(plan)
    if order.dry_run:
        print(_described(order, plan, folder))
        return True
    data = digests(plan)
    check_free(path, folder)
    folder.mkdir(parents=True, exist_ok=True)
    study = open_study(folder, order)
    with study_lock(folder):
        if not settle_identity(study, folder, settings_of(plan), data, code_digest()):
            print(f"note: the code changed since {folder} began; trials are of both versions")
    begin(plan, study, folder)
    reasons = _work(order, plan, study, folder)
    return _finish(order, plan, study, folder, path, reasons)


def _work(order: Order, plan: Plan, study: optuna.Study, folder: Path) -> list[str]:
    begun = f"search {plan.name}: {_so_far(study, order, plan)}; {order.workers} at a time"
    print(begun, flush=True)
    watch = Watch(study, order.trials, str(plan.config.select_on))
    try:
        if order.workers == 1:
            work(plan, study, folder, order.trials, look=watch.look)
            return []
        cpu = pick_device(plan.config.device).type == "cpu" and plan.config.threads is None
        threads = max(1, (os.cpu_count() or 1) // order.workers) if cpu else None
        return work_at_once(order, folder, threads, watch.look)
    except (KeyboardInterrupt, Interrupted):
        watch.close()
        print(f"search {plan.name}: {_so_far(study, order, plan)}")
        raise
    finally:
        watch.close()
        with suppress(OSError), study_lock(folder):  # a full disk: the next call does it
            release_dead(study, folder)


def _so_far(study: optuna.Study, order: Order, plan: Plan) -> str:
    trials = finished(study)
    best = best_of(trials)
    text = f"{len(trials)} of {order.trials} trials finished"
    if best is None:
        return text
    return f"{text}, best {plan.config.select_on} {best.value:.4f} on vali (trial {best.number})"


def _finish(
    order: Order, plan: Plan, study: optuna.Study, folder: Path, path: Path, reasons: list[str]
) -> bool:
    """Write what was found and say so."""
    complete = len(finished(study)) >= order.trials
    write_trials(folder / "trials.csv", study, plan)
    title = f"{plan.name}: {data_of(plan)}"
    draw_history(study, folder, title, str(plan.config.select_on))
    print(f"\n{summary(study, plan)}\n")
    best = best_of(finished(study))
    if best is not None:
        write_best(path, folder, order, plan, study, best)
        print(f"written to {path}: {command_of(path)}")
    print(f"kept in {folder} (trials.csv, history.png, history.svg)")
    for reason in dict.fromkeys(reasons):
        print(f"a worker ended early: {reason}")
    if not complete:
        print("not all trials are finished; the same command goes on from here")
    return complete and best is not None


def _described(order: Order, plan: Plan, folder: Path) -> str:
    """What a search would be of."""
    rows = [[key, str(space), as_text(plan.default(key))] for key, space in plan.space.items()]
    count = "one training" if len(plan.repeats) == 1 else f"{len(plan.repeats)} trainings"
    return "\n".join(
        [
            f"search {plan.name} by {plan.config.select_on} on vali of {data_of(plan)}",
            f"{order.trials} trials of {count} each, {order.workers} at a time, "
            f"{'would go on' if is_there(folder) else 'would begin'} in {folder}",
            "",
            tabulate(rows, ["key", "space", "first trial"], disable_numparse=True),
            "",
            f"first trial: {shlex.join(['python', 'train.py', *plan.overrides])}",
            "",
            OmegaConf.to_yaml(plan.config),
        ]
    )
