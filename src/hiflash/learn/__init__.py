"""Everything that needs torch: models, and trainers that run client tasks."""
