"""Draw the figures and tables of the papers: ``python scripts/figures.py --help``."""

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("figures")
def main(cfg: DictConfig) -> None:
    """Draw the figures that ``cfg`` names and print what they show."""
    from ltr.experiment.figures.draw import draw_figures  # torch and matplotlib only for work

    print(draw_figures(cfg))


if __name__ == "__main__":
    main()
