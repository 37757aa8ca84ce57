"""The verifier: runs the target model and decides which drafts are accepted."""
