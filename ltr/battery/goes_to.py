"""Which metric each soft loss of the project goes to; a new one is declared here."""

GOES_TO = {
    "approx_ndcg_loss": "ndcg",
    "neural_err_loss": "err",
    "neural_map_loss": "map",
    "neural_mrr_loss": "mrr",
    "neural_ndcg_loss": "ndcg",
    "neural_precision_loss": "precision",
    "ot_ndcg_loss": "ndcg",
    "soft_ndcg_loss": "ndcg",
    "softsort_ndcg_loss": "ndcg",
}
