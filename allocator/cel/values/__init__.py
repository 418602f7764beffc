"""Runtime values, and what the language itself does with them: equality, order, arithmetic, membership, selection."""
