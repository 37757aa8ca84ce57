"""The drafter: a small model that proposes tokens. Its state is a cache."""
