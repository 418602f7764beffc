"""Runtime values, and what the language itself does with them.

CEL value    Python value
bool, int, double, string, bytes, null    bool, int, float, str, bytes, None, told apart by exact class
list, map    list, dict (see `maps.map_key`), never changed once made
uint, duration, timestamp, type, optional, quantity, semver    the classes of `scalars` and `semver`

Exact classes matter: Python's `True == 1` is not CEL's. Code compares `value.__class__`, never `isinstance`.
"""
