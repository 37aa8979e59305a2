"""Where the time of a call goes."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

ROWS = 15


def profiled(call: Callable[[], object], device: str) -> str:
    """A table of the operators that one call spends most time in, largest first."""
    activities = [ProfilerActivity.CPU]
    key = "self_cpu_time_total"
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
        key = "self_device_time_total"
    with profile(activities=activities) as record:
        call()
    return record.key_averages().table(sort_by=key, row_limit=ROWS, max_name_column_width=40)
