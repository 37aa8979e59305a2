"""Ids of the official files of each set: SHA-256, or for LETOR 4.0 git's id (SHA-1) of the file.

The SHA-256 are those that the pytorchltr package checks; the git ids those of two public
repositories that keep LETOR 4.0, one with line feeds alone, one with Microsoft's own line ends.
"""

from collections.abc import Mapping

_FiveIds = tuple[str, str, str, str, str]


def _five_folds(*forms: tuple[_FiveIds, _FiveIds]) -> Mapping[str, tuple[str, ...]]:
    """Path -> ids, one for each form, from the ids of the parts S1 to S5 and of train 1 to 5.

    Fold f validates on part f+3 and tests on part f+4, counted in a circle.
    """
    ids: dict[str, tuple[str, ...]] = {}
    for f in range(5):
        ids[f"Fold{f + 1}/train.txt"] = tuple(train[f] for _, train in forms)
        ids[f"Fold{f + 1}/vali.txt"] = tuple(parts[(f + 3) % 5] for parts, _ in forms)
        ids[f"Fold{f + 1}/test.txt"] = tuple(parts[(f + 4) % 5] for parts, _ in forms)
    return ids


WEB30K = _five_folds(
    (
        (
            "d192c023baebdae148d902d716aeebf3df2f2f1ce5aee12be4f0b8bb76a8c04a",
            "ba2487a27c21dceea0b9afaadbb6b392d5f652eb0fb8649cbd201bb894c47c12",
            "a7ba03d708ae6b21556a8a6859d52e37cc0dcb2cbff992c630ef6173bb02122a",
            "7647834b84c849a61e5cf3c999a2f72a4785613286fd972a5615e9fcb58f94d8",
            "9a4668fd2615e6772d2e5c4d558d084b2daaf2405571eaf3e4d0526f4da096c7",
        ),
        (
            "40b8eee4d1221cf8205e81603441c1757dd024a3baac25a47756210b03c031d6",
            "a6d12dc4cc8c2dd0743b58c49cad12bd0f6f1cbeda54b54a91e5b54e0b96e7ca",
            "3d0eb52a6702b2c48750a6de89e757cfac499c8ec1d38e3843cb531c059f2f74",
            "21e389656be3c2bfe92eb4fb898d2f30dc24990fc524aada7471b949f176778d",
            "a19da1799650b08c0dc3baaec6c590469ef1773148082e1a10b8504f2f5e9a8b",
        ),
    ),
)

WEB10K = _five_folds(
    (
        (
            "44add582ccd674cf63af24d3bf6e1074e87a678db77f00b44c37980a3010917a",
            "c0a5a3c6bd7790d0b4ff3d5e961d0c8c5f8ff149089ce492540fa63035801b7a",
            "dc6083c24a5f0c03df3c91ad3eed7542694115b998acf046e51432cb7a22b848",
            "e86fb3fe7e8a5f16479da7ce04f783ae85735f17f66016786c3ffc797dd9d4db",
            "33fe002374a4fce58c4e12863e4eee74745d5672a26f3e4ddacc20ccfe7d6ba0",
        ),
        (
            "6eb3fae4e1186e1242a6520f53a98abdbcde5b926dd19a28e51239284b1d55dc",
            "40e4a2fcc237d9c164cbb6a3f2fa91fe6cf7d46a419d2f73e21cf090285659eb",
            "f13005ceb8de0db76c93b02ee4b2bded6f925097d3ab7938931e8d07aa72acd7",
            "6c1677cf9b2ed491e26ac6b8c8ca7dfae9c1a375e2bce8cba6df36ab67ce5836",
            "4249797a2f0f46bff279973f0fb055d4a78f67f337769eabd56e82332c044794",
        ),
    ),
)

ISTELLA: Mapping[str, tuple[str, ...]] = {
    "train.txt": ("8b08ca4c36281e408bfa026303461a6162398a1eec22fb79db0709c76bf6d189",),
    "test.txt": ("4b34523af8e030718f0216bcae0a35caee1e34e5198ff3e76c08a75db61aac65",),
}

ISTELLA_S: Mapping[str, tuple[str, ...]] = {
    "train.txt": ("5cda4187b88b597ca6fa98d6cd3a6d7551ba69ffff700eae63a59fbc8af385b8",),
    "vali.txt": ("f225dd95772fa65dc685351ff2643945fbd9a9c0e874aa1c538d485595e7c890",),
    "test.txt": ("2cd1a4f46fa21ea2489073979b5e5913146d1e451f1d6e268bc4e472d39da5d7",),
}

MQ2007 = _five_folds(
    (
        (
            "591353033e999e5129407299b263a20172707332",
            "fbeb281a9a628d659e8510a332fa47da396fe621",
            "abbb6c5f4aedeb316b6bccca3630b62ddf2fc6d7",
            "07d7c1e15d382796ed2fa35be2c190f87298d7cc",
            "bf5231e70d3262fefcbe80962ad34238270be63f",
        ),
        (
            "8dc7d6fefe1755d1b4384a7bb0985d27b0abefa1",
            "551f25cc11527cd26a7336166e8f5ca4396c156d",
            "62172ce1c0036064779664bf34d6ddc1ca9c47e9",
            "ab1d49cc58f087e37a9e840e235ad9aa3d054a6b",
            "2bf63fd6908903e836cecb3590e2405945142863",
        ),
    ),
    (
        (
            "066edb3d364960069d7be80d5b08f8660504c834",
            "7e46c5062b8f16f3cd8a59684c8c35d87aadb786",
            "5a427e04889c8328f8e855f8545a145e1fe7df9e",
            "ff219c465ff09caeec651efbd85ebcf8db98caa9",
            "5ac3a703ea496d80db53c4712094d03af748fa2b",
        ),
        (
            "3f2c769e3e20508f58e878a0db56e23a03a783cf",
            "da88989fdc4e7436d6234b53f09fecc7908e397a",
            "4af0d8065fccfd679b5177082d4c982715cfcff2",
            "062f870b4fd164c2624e9010400c9392cc3c131e",
            "6a8183cd41ca897d814253f7a7fa78ef9e8a75b3",
        ),
    ),
)

MQ2008 = _five_folds(
    (
        (
            "3669c70a236ecd6af96643feab707f8cb58b47d0",
            "8539dae36629f3d5c2cf13e8f4cff03538bd09ea",
            "eb07baf08a7b1a097f993ac98d5db61fb5afe46d",
            "c61751d70fcc29685fd073d1bb69d8e3c9d4b8af",
            "055307e3a3e81f1a8f27858ae6aeeb6550179e95",
        ),
        (
            "9ecaeaafec3b430b12659b9449aa19ec1db9e4ce",
            "bbad70e90955fa3e2c126426da1296a90f33c4f7",
            "ff786d941914114ce4e9f9cd5cfb2b4bb5b52eed",
            "ae50a74952622bd52c66acb7a6e45721e7ba60dd",
            "50f5a9d80fd65cad8b27c29d86caf32c92e3fa49",
        ),
    ),
    (
        (
            "d554ac36995a4634787d67b382bc978c372028a9",
            "da034bd1ed0a8f0ebd213eb4e5770cd6c5049e83",
            "984953f411de49055fd6b7bf5d120cb825c165df",
            "56b6ab27461a970d3f8bf0f03a74606ffff81fd4",
            "95ec451f14f23eacaa91d2cf2f50276ef3e78c5d",
        ),
        (
            "9f4fe6d8ecb8d64ce7462eb392405e326296223b",
            "ba869b3f34d90654eccf4ed457f5e5f02379d92a",
            "600827241021a2709ad2a1246e26a34197b1dd3e",
            "dadfdfc568df67b7ff460e1b6ea032583ad2aa8b",
            "713542255a6594369a60830ea0d26c35616be950",
        ),
    ),
)
