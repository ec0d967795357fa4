"""A lease in the hands of a driver: how long it is sure of it, and renewing it.

A lease is *safe* until its time has passed since the last renewal was sent, not since it was
answered; by then another driver may have it. What keeps two drivers apart is the fence alone
(LOG 1.1); that a driver enters no tool once its lease is not safe keeps it from doing what it could
not write down (LOG 2.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Callable

from perdure.clock import boot_time
from perdure.errors import ConfigError, FenceLost, Leased, LeaseExpired
from perdure.log.lease_thread import Pulse, Stop, work_here, work_there
from perdure.log.store import Lease, Leases, Renewing

DEFAULT_SECONDS = 30.0
"""Seconds that a lease holds without being renewed, unless somebody says otherwise."""

RENEWALS = 3
"""How often a lease is renewed within the time that it holds."""

ATTEMPTS = 20
"""How often that is tried, within the same time, when it fails."""

GIVE_UP = 0.75
"""The part of its time after which what runs under it ends, if no renewal has succeeded."""

MAX_STALL = 60.0
"""Seconds for which an event loop may be blocked and keep its leases, unless somebody says
otherwise. A process that hangs for good loses its runs to another."""

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
        self.on_lost: Callable[[FenceLost | LeaseExpired], None] | None = None
        """Called on the event loop of `keep` when a renewal says that somebody else has the lease,
        or when none has succeeded for so long that somebody soon may: what runs under it is to be
        cancelled (LOG 2.3). It is not called after `release`."""
        self._store = store
        self._sent = sent
        self._boot = boot
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse: Pulse | None = None
        self._stop: Stop | None = None
        self._worried = False
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

    def keep(self, *, max_stall: float = MAX_STALL) -> None:
        """Renew it from time to time, until `release`, where it lapses.

        Stores that can be used from a second event loop are asked on a thread of its own, so that
        a blocked loop keeps its leases (DESIGN 8). One that was lost stays lost: the next append
        says so, and before it no tool is entered.

        Args:
            max_stall: Seconds for which the loop that runs may be blocked and still keep it.

        Raises:
            ConfigError: That is not a positive number.
        """
        if not max_stall > 0:
            raise ConfigError(f"max_stall is a positive number of seconds, got {max_stall}")
        seconds = self.lease.seconds
        if seconds is None or self._loop is not None:
            return
        loop = self._loop = asyncio.get_running_loop()
        renew = functools.partial(self._renew, seconds, max_stall)
        pause, name = seconds / RENEWALS, f"perdure-lease-{self.lease.root}"
        if isinstance(self._store, Renewing):
            self._pulse = Pulse(loop, self._boot, within=max_stall)
            self._stop = work_there(self._store, renew, after=pause, name=name)
        else:
            self._stop = work_here(renew, after=pause, name=name)

    async def release(self) -> None:
        """Stop renewing it, wait for a renewal that is on its way, and give it back."""
        self._over = True  # a store may lose a cancellation, on its way through its driver
        await asyncio.shield(self._give_back())

    async def _give_back(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
        if self._stop is not None:
            await self._stop()
        await self._store.release(self.lease)

    # --- on the loop that renews ---------------------------------------------------------------

    async def _renew(self, seconds: float, max_stall: float) -> None:
        while not self._over:
            if self._pulse is not None and self._pulse.loop.is_closed():
                return  # whoever drove is gone
            pause = seconds / ATTEMPTS
            if self._pulse is None or self._pulse.silent() <= max_stall:
                try:
                    if await self._renewed(seconds):
                        pause = seconds / RENEWALS
                except FenceLost as error:
                    self._tell(error)
                    return
            await asyncio.sleep(pause)  # real time, which is what stores measure leases with

    async def _renewed(self, seconds: float) -> bool:
        """Renew it once; whether that is known to have succeeded."""
        sent = self._boot()
        end = self._sent + GIVE_UP * seconds
        left = max(end - sent, seconds / RENEWALS)  # a pause of the machine is no failure
        timer = asyncio.get_running_loop().call_later(left, self._worry)
        try:
            self.lease = await self._store.renew(self.lease)
        except FenceLost:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, its driver is told in time
            if self._boot() >= end:
                self._worry()
            return False
        finally:
            timer.cancel()
        self._sent = sent
        self._worried = False
        return True

    def _worry(self) -> None:
        """Nobody knows whether it is held much longer: end what runs while it still is."""
        if not self._worried:
            self._worried = True
            self._tell(LeaseExpired(self.lease.root))

    def _tell(self, error: FenceLost | LeaseExpired) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: nobody drives there any more
                self._loop.call_soon_threadsafe(self._hear, error)

    def _hear(self, error: FenceLost | LeaseExpired) -> None:
        if self.on_lost is not None and not self._over:
            self.on_lost(error)


async def take_lease(
    store: Leases,
    root: str,
    *,
    holder: str,
    seconds: float = DEFAULT_SECONDS,
    wait: float = 0.0,
    boot: Callable[[], float] = boot_time,
) -> Held:
    """Take the lease of a root session. Raises as `Leases.lease`; a time of none is refused.

    Args:
        store: Whose it is.
        root: The session.
        holder: Who takes it; this process, by its number and machine, if empty.
        seconds: How long it holds without being renewed.
        wait: Seconds to wait while another has it. What a killed process held lapses in time.
        boot: The machine's boot-time clock, in seconds.
    """
    if not seconds > 0:
        raise ConfigError(f"a lease holds for a positive number of seconds, got {seconds}")
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
