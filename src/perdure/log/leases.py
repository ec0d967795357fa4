"""A lease in the hands of a driver: how long it is sure of it, and renewing it.

A lease is *safe* until its time has passed since the last renewal was sent, not since it was
answered; by then another driver may have it. What keeps two drivers apart is the fence alone
(LOG 1.1); that a driver enters no tool once its lease is not safe keeps it from doing what it could
not write down (LOG 2.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

from perdure.clock import boot_time
from perdure.errors import FenceLost, Leased, LeaseExpired, StoreFailed
from perdure.log.store import Lease, Leases

DEFAULT_SECONDS = 30.0
"""Seconds that a lease holds without being renewed, unless somebody says otherwise."""

RENEWALS = 3
"""How often a lease is renewed within the time that it holds."""

LOOK_AGAIN = (0.02, 0.05, 0.1, 0.25, 0.5)
"""Seconds between looks at a lease that another has; the last stays."""


class Held:
    """A lease that somebody holds.

    Args:
        store: Whose it is.
        lease: The lease.
        sent: When it was asked for, on `boot`.
        boot: The machine's boot-time clock, in seconds.
    """

    def __init__(
        self,
        store: Leases,
        lease: Lease,
        *,
        sent: float,
        boot: Callable[[], float] = boot_time,
    ) -> None:
        self.lease = lease
        self.on_lost: Callable[[FenceLost], None] | None = None
        """Called on the event loop when a renewal says that somebody else has the lease: what runs
        under it is to be cancelled (LOG 2.3)."""
        self._store = store
        self._sent = sent
        self._boot = boot
        self._renewing: asyncio.Task[None] | None = None
        self._over = False

    def is_safe(self) -> bool:
        """Whether nobody else can have it yet."""
        seconds = self.lease.seconds
        return seconds is None or self._boot() < self._sent + seconds

    def check(self) -> None:
        """Refuse to go on under a lease that is not safe.

        Raises:
            LeaseExpired: It is not.
        """
        if not self.is_safe():
            raise LeaseExpired(self.lease.root)

    def keep(self) -> None:
        """Renew it from time to time, until `release`, where it lapses.

        One that was lost stays lost: the next append says so, and before it no tool is entered.
        """
        if self.lease.seconds is not None and self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(
                self._renew(self.lease.seconds / RENEWALS), name=f"perdure-lease-{self.lease.root}"
            )

    async def release(self) -> None:
        """Stop renewing it, and give it back."""
        self._over = True  # a store may lose a cancellation, on its way through its driver
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await asyncio.shield(self._store.release(self.lease))

    async def _renew(self, pause: float) -> None:
        while not self._over:
            await asyncio.sleep(pause)  # real time, which is what stores measure leases with
            with contextlib.suppress(StoreFailed):
                sent = self._boot()
                try:
                    self.lease = await self._store.renew(self.lease)
                except FenceLost as error:
                    if self.on_lost is not None:
                        self.on_lost(error)
                    return
                self._sent = sent


async def take_lease(
    store: Leases,
    root: str,
    *,
    holder: str,
    seconds: float = DEFAULT_SECONDS,
    wait: float = 0.0,
    boot: Callable[[], float] = boot_time,
) -> Held:
    """Take the lease of a root session. Raises as `Leases.lease`.

    Args:
        store: Whose it is.
        root: The session.
        holder: Who takes it; this process, by its number and machine, if empty.
        seconds: How long it holds without being renewed.
        wait: Seconds to wait while another has it. What a killed process held lapses in time.
        boot: The machine's boot-time clock, in seconds.
    """
    holder = holder or f"process {os.getpid()} on {socket.gethostname()}"
    end = boot() + wait
    pauses = iter(LOOK_AGAIN)
    pause = 0.0
    while True:
        sent = boot()
        try:
            return Held(
                store, await store.lease(root, holder=holder, seconds=seconds), sent=sent, boot=boot
            )
        except Leased:
            left = end - boot()
            if left <= 0:
                raise
        pause = next(pauses, pause)
        await asyncio.sleep(min(pause, left))  # real time, as that of leases
