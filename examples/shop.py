"""A made shop: searches, the products that each of them found, and how useful each product was.

It has what real tables have: product ids that are text, numbers with missing cells (a price that
was not scraped, no reviews yet), three columns of categories, one of them with many values, values
that first come up in the test rows, and rows in no order.

    python examples/shop.py shop.parquet             5,000 searches, about 100,000 rows
    python examples/shop.py shop.csv --queries 500
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

COLOURS = ["black", "blue", "green", "red", "white", "yellow"]
DEPARTMENTS = ["books", "garden", "kitchen", "music", "shoes", "sports", "toys"]
BRANDS = 300  # a tenth of them new: they sell in the last searches only


def shop(queries: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Rows of ``queries`` searches in a random order.

    Columns: ``search`` and ``product`` (text ids), ``grade`` (0 to 4), the numbers ``match``,
    ``price``, ``discount``, ``rating``, ``reviews``, ``age_days``, ``clicks_month``, ``stock`` (the
    last six with missing cells), and the categories ``brand``, ``colour``, ``department``.
    """
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.85, 0.55, queries).astype(int), 2, 100)
    of = np.repeat(np.arange(queries), lengths)
    items = len(of)
    department = rng.integers(0, len(DEPARTMENTS), queries)[of]
    wanted = rng.integers(0, len(COLOURS), queries)[of]  # no column says it; items of it match more
    old = rng.zipf(1.4, items) % (BRANDS * 9 // 10)
    new = BRANDS * 9 // 10 + rng.integers(0, BRANDS // 10, items)
    brand = np.where((of >= queries * 0.9) & (rng.random(items) < 0.15), new, old)
    quality = np.concatenate([rng.normal(size=BRANDS)])[brand]  # of a brand
    fits = rng.normal(size=(BRANDS, len(DEPARTMENTS)))[brand, department]
    colour = np.where(rng.random(items) < 0.4, wanted, rng.integers(0, len(COLOURS), items))
    match = rng.normal(size=items) + 0.5 * (colour == wanted)
    price = np.exp(rng.normal(3 + 0.3 * (department % 3), 0.7))
    rating = np.clip(rng.normal(3.8 + 0.4 * quality, 0.6), 1, 5)
    reviews = rng.poisson(np.exp(rng.normal(2.5 + 0.5 * quality, 1.0)))
    age = rng.exponential(200, items)
    cheapest = pd.Series(price).groupby(of).rank(pct=True).to_numpy()  # against its own list
    discount = np.where(rng.random(items) < 0.3, rng.uniform(0.05, 0.6, items), 0.0)
    useful = (
        0.9 * match + 0.5 * quality + 0.6 * fits - 0.9 * cheapest + 0.8 * discount
        + 0.25 * np.log1p(reviews) - 0.1 * np.log1p(age) + 0.3 * (rating - 3.8)
        + 0.7 * rng.normal(size=items) + 0.4 * rng.normal(size=queries)[of]
    )  # fmt: skip
    limits = np.quantile(useful, [0.55, 0.8, 0.93, 0.98])
    clicks = rng.poisson(np.exp(0.5 * useful))
    table = pd.DataFrame(
        {
            "search": [f"s{number:05d}" for number in of],
            "product": [f"{DEPARTMENTS[d][:2]}-{n:07d}" for d, n in zip(
                department, rng.permutation(items), strict=True
            )],
            "grade": np.searchsorted(limits, useful),
            "match": match.round(4),
            "price": price.round(2),
            "discount": discount.round(2),
            "rating": rating.round(1),
            "reviews": reviews,
            "age_days": age.round(),
            "clicks_month": clicks,
            "stock": rng.poisson(8, items),
            "brand": [f"brand {number:03d}" for number in brand],
            "colour": np.array(COLOURS)[colour],
            "department": np.array(DEPARTMENTS)[department],
        }
    )  # fmt: skip
    table.loc[reviews == 0, "rating"] = np.nan  # nobody has rated it
    for name, share in {
        "price": 0.08, "discount": 0.05, "age_days": 0.15, "clicks_month": 0.3, "stock": 0.1,
        "colour": 0.12,
    }.items():  # fmt: skip
        table.loc[rng.random(items) < share, name] = None
    return table.sample(frac=1, random_state=seed, ignore_index=True)


def main() -> None:
    """Write the shop to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="a name that ends in .parquet or .csv")
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table = shop(given.queries, given.seed)
    if given.output.suffix == ".parquet":
        table.to_parquet(given.output, index=False)
    else:
        table.to_csv(given.output, index=False)
    print(f"{len(table):,} rows of {table['search'].nunique():,} searches: {given.output}")


if __name__ == "__main__":
    main()
