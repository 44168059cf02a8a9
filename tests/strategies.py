"""Random values of every type that the codec accepts."""

from hypothesis import strategies as st

from verifier_server.judging import codec

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.binary(max_size=20)
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.builds(range, st.integers(-99, 99), st.integers(-99, 99), st.integers(1, 9))
)
hashables = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=5
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
    ),
    max_leaves=12,
)


def has_canonical_form(value: object) -> bool:
    """Whether the codec accepts it; a dict with two NaN keys is the one exception among these."""
    try:
        codec.encode(value, 1 << 20)
    except codec.EncodingError:
        return False
    return True


codable = values.filter(has_canonical_form)
