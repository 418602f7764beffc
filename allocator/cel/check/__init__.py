"""From a syntax tree to a typed one: what an expression may use, which overloads fit, what upstream refuses."""
