"""Several processes that train one model, started as torchrun starts them."""

from pathlib import Path

from torch.distributed import TCPStore

from tests.helpers import processes


def run_ranks(count: int, program: str | Path, *arguments: str) -> tuple[list[int], str, str]:
    """Run a program, a process for each rank, to the end of all.

    Returns:
        The exit statuses, and what all printed together on stdout and on stderr.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = {
        "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
    }  # fmt: skip
    started = [
        processes.start(
            program, *arguments, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(count)
    ]
    printed = [process.communicate() for process in started]
    out, err = ("".join(texts) for texts in zip(*printed, strict=True))
    return [process.wait() for process in started], out, err
