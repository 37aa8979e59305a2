"""Why a model ranks a list as it does: features, other items, and features on the metric."""
