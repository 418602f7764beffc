"""CEL device selectors: parse, check, compile to closures, evaluate with cost and deadline."""
