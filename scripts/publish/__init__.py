"""From a folder made here to a repository on the Hugging Face hub: prepare, check, upload."""
