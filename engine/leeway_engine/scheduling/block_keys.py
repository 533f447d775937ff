"""Keys by which KV blocks of equal tokens are found again."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

KEY_BYTES = 32


class KeySpace:
    """Makes the keys of blocks that may stand for each other: same model, tenant, salt and tool schemas.

    A block's key is a digest of the key before it and of its own tokens, so it stands for all tokens up to the block's
    end. Keys are equal in every process.
    """

    def __init__(self, block_size: int, *, model: str, tenant: str = "", salt: str = "", tool_schema: str = "") -> None:
        """`tool_schema` is the revision of the tools that a prompt names; `salt` separates users of one tenant."""
        self._block_size = block_size
        digest = blake2b(block_size.to_bytes(4, "little"), digest_size=KEY_BYTES)
        for part in (model, tenant, salt, tool_schema):
            data = part.encode("utf-8", "surrogatepass")
            # With its length before each, no two different sets of names give the same bytes.
            digest.update(len(data).to_bytes(8, "little") + data)
        self._root = digest.digest()

    def extend(self, keys: list[bytes], token_ids: Sequence[int]) -> None:
        """Append the keys of the full blocks of `token_ids` that have none yet; `keys` are of the blocks before."""
        size = self._block_size
        start = len(keys) * size
        key = keys[-1] if keys else self._root
        for block in range(start, len(token_ids) - size + 1, size):
            tokens = array("I", token_ids[block : block + size])
            key = blake2b(tokens.tobytes(), key=key, digest_size=KEY_BYTES).digest()
            keys.append(key)
