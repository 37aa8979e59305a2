"""Vespa: the ONNX graph of one document, and the rank profile that feeds it attributes."""

from collections.abc import Sequence
from dataclasses import replace

from ltr.errors import ConfigError
from ltr.export.form import IDENTIFIER, Exported
from ltr.export.onnx import NAME

PROFILE = "rank-profile.sd"


def with_profile(graph: Exported, name: str, features: Sequence[str]) -> Exported:
    """``graph``, of single items, with the snippet of the schema.

    Raises:
        ConfigError: a feature's name is none of an attribute.
    """
    if wrong := [feature for feature in features if not IDENTIFIER.fullmatch(feature)]:
        raise ConfigError(
            f"to=vespa: {wrong[0]!r} is no name of an attribute in an expression: name the columns "
            "by letters, digits and _, and train again, or serve to=onnx beside the engine"
        )
    values = ", ".join(f"attribute({feature})" for feature in features)
    width = len(features)
    text = f"""# Into the schema of the documents; {NAME} lies in files/ of the application package.
# A feature is an attribute of its name here: put the expression of yours in its place.
rank-profile {name} {{
    onnx-model {name} {{
        file: files/{NAME}
        input features: features
        output scores: scores
    }}
    function features() {{
        expression: tensor<float>(d0[1],d1[{width}]):[[{values}]]
    }}
    first-phase {{
        expression: nativeRank
    }}
    second-phase {{
        rerank-count: 100
        expression: sum(onnx({name}).scores)
    }}
}}
"""
    return replace(graph, files={**graph.files, PROFILE: text})
