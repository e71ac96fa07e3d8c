"""Keys and masks.

Two hospitals agree on a secret by X25519. They derive a key from it by HKDF, and a mask from the key by AES in counter
mode.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError

Mask = NDArray[np.uint64]

INFO = b"raysim/secagg/mask"


def check_installed() -> None:
    """Raise ``ConfigError`` if the package ``cryptography`` is not installed."""
    if find_spec("cryptography") is None:
        raise ConfigError("secure.mode: execute needs the package cryptography; pip install 'raysim[privacy]'")


def private_key(secret: bytes) -> Any:
    """Return the X25519 private key whose 32 bytes are ``secret``."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)


def public_bytes(private: Any) -> bytes:
    """Return the 32 bytes of the public key of ``private``."""
    raw: bytes = private.public_key().public_bytes_raw()
    return raw


def agreed_key(private: Any, public: bytes, info: bytes = INFO) -> bytes:
    """Return the 32-byte key that two hospitals agree on, each from its private key and the other's public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return derived(private.exchange(X25519PublicKey.from_public_bytes(public)), info)


def derived(secret: bytes, info: bytes = INFO) -> bytes:
    """Derive a 32-byte key from ``secret`` by HKDF-SHA256. ``info`` names the purpose of the key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def mask(key: bytes, count: int) -> Mask:
    """Return ``count`` pseudo-random 64-bit integers generated from ``key`` by AES-256-CTR with a zero nonce."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


def sealed(key: bytes, text: bytes) -> bytes:
    """Encrypt ``text`` under ``key`` (ChaCha20-Poly1305). The nonce is 0, so a key may encrypt only one text."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), text, None)


def opened(key: bytes, text: bytes) -> bytes:
    """Decrypt a text that :func:`sealed` encrypted under ``key``."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).decrypt(bytes(12), text, None)
