"""From a typed tree to closures over one device, and programs that can be evaluated, remembered and asked what they read."""
