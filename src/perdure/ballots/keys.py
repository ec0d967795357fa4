"""Keys: what makes and checks signatures, and how keys and signatures are written."""

from __future__ import annotations

import base64
import binascii
import importlib.util
import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from perdure.ballots.curve import weakness

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ED25519 = "ed25519"


class BadKey(ValueError):
    """A key that cannot be used; the message says why."""


class Verifier(Protocol):
    """Checks the signatures of one approver."""

    @property
    def alg(self) -> str:
        """The algorithm; it is what a signature's text begins with."""
        ...

    @property
    def key_ids(self) -> tuple[str, ...]:
        """What tells its keys from all others; the first is its text in evidence."""
        ...

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature is one of the message. What it raises stops the count.

        It is synchronous, and gives a bool: anything else is `BadKey`, and no vote. Keys that a
        service holds are fetched before, and checked here.
        """
        ...


class Ed25519Key:
    """A public Ed25519 key.

    Args:
        raw: Its 32 bytes.

    Raises:
        BadKey: It is of no point of the curve, not written canonically, or not of the prime-order
            group, so that it would verify what its owner never signed.
    """

    __slots__ = ("raw",)

    alg = ED25519

    def __init__(self, raw: bytes) -> None:
        if fault := weakness(raw):
            raise BadKey(f"this Ed25519 key cannot be used: {fault}")
        self.raw = raw

    def __repr__(self) -> str:
        return f"<{self.text}>"

    @property
    def text(self) -> str:
        return encode_text(ED25519, self.raw)

    @property
    def key_ids(self) -> tuple[str, ...]:
        return (self.text,)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature is one of the message.

        Raises:
            ModuleNotFoundError: The package cryptography is not there.
        """
        need_library()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private Ed25519 key. It never prints itself.

    Raises:
        ModuleNotFoundError: The package cryptography is not there.
    """

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        need_library()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = key or Ed25519PrivateKey.generate()

    @classmethod
    def read(cls, pem: bytes) -> SigningKey:
        """A key from its PEM text, PKCS #8 and not encrypted.

        Raises:
            BadKey: It is none.
        """
        need_library()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise BadKey("this is no private key in PEM that needs no password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("this is no Ed25519 key")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """Its PEM text: whoever has it votes in its owner's name."""
        from cryptography.hazmat.primitives import serialization as form

        return self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )

    @property
    def public(self) -> str:
        """The text of the public key, which the agent's definition holds."""
        return encode_text(ED25519, self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> str:
        """The text of a signature."""
        return encode_text(ED25519, self._key.sign(message))


def verifier_fault(verifier: Verifier) -> str:
    """Why something cannot check signatures, as far as one sees it before; empty if it may."""
    verify: object = getattr(verifier, "verify", None)
    if not callable(verify):
        return f"it is a text or a verifier, got {verifier!r}"
    if inspect.iscoroutinefunction(verify) or inspect.isasyncgenfunction(verify):
        return "its verify is asynchronous, and votes are counted at once; make it synchronous"
    if isinstance(getattr(verifier, "key_ids", ""), str):
        return "its key_ids are a tuple of texts"
    return ""


def is_verified(verifier: Verifier, message: bytes, signature: bytes) -> bool:
    """Whether a verifier says, with True and nothing else, that the signature is good.

    Raises:
        BadKey: What it says is no bool.
    """
    said = cast("object", verifier.verify(message, signature))
    if isinstance(said, bool):
        return said
    if inspect.iscoroutine(said):
        said.close()
    raise BadKey(
        f"verify of {type(verifier).__name__!r} gave {type(said).__name__!r}, and not True or "
        "False; it is synchronous, and gives a bool"
    )


def need_library() -> None:
    """Refuse to go on without the package that signs and verifies.

    Raises:
        ModuleNotFoundError: The package cryptography is not there.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise ModuleNotFoundError(
            "signatures need the package cryptography: pip install 'perdure[crypto]'"
        )


def read_key(text: str) -> Ed25519Key:
    """The public key of a text, as `ed25519:BASE64URL`.

    Raises:
        BadKey: It is none, or a weak one.
    """
    alg, raw = decode_text(text)
    if alg != ED25519 or raw is None:
        raise BadKey(f"{text!r} is no public key; one looks like ed25519:BASE64URL")
    return Ed25519Key(raw)


def encode_text(alg: str, raw: bytes) -> str:
    """Bytes as text, `ALGORITHM:BASE64URL`, without padding."""
    return f"{alg}:{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


def decode_text(text: str) -> tuple[str, bytes | None]:
    """The algorithm and the bytes of a text; None if it is not spelled as `encode_text` does."""
    alg, _, coded = text.partition(":")
    if not alg or not re.fullmatch(r"[A-Za-z0-9_-]+", coded):
        return alg, None
    try:
        raw = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
    except binascii.Error:
        return alg, None
    return alg, raw if encode_text(alg, raw) == text else None


def signature_fault(text: str) -> str:
    """Why a text is no signature; empty if it may be one."""
    alg, raw = decode_text(text)
    if raw is None:
        return "a signature looks like ed25519:BASE64URL"
    if alg == ED25519 and len(raw) != 64:
        return f"an Ed25519 signature has 64 bytes, and this has {len(raw)}"
    return ""


def sharing(keys: Mapping[str, Verifier]) -> frozenset[str]:
    """Those whose keys are not theirs alone, or who name none: the votes of none of them count."""
    owners: dict[str, set[str]] = {}
    for name, verifier in keys.items():
        for key in verifier.key_ids or ("",):
            owners.setdefault(key, set()).add(name)
    return frozenset(
        name for key, names in owners.items() if len(names) > 1 or not key for name in names
    )
