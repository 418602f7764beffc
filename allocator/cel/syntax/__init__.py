"""From text to a syntax tree: tokens, literals, the parser, macros. Knows no types but their notation in the tree."""
