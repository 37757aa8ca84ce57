"""The verifier: the target model and the one place where drafts are accepted."""
