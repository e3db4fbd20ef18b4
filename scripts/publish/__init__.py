"""Publication of data sets and models on the Hugging Face hub: prepare, check, upload."""
