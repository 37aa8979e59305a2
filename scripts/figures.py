"""Draw the figures and tables of the papers: ``python scripts/figures.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("figures")
def main(cfg: DictConfig) -> None:
    """Draw the figures that ``cfg`` names and print what they show."""
    from ltr.experiment.figures.draw import draw_figures  # torch and matplotlib only for work

    with stoppable():
        print(draw_figures(cfg))


if __name__ == "__main__":
    main()
