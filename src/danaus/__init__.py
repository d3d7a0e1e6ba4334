"""danaus: training of large models that goes through failures."""
