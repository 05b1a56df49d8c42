"""A call of an entry in slices: for whoever must not wait until the whole of it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.errors import InputError

if TYPE_CHECKING:
    from linnet.torch.module import Entry


class Slices:
    """One call, run a little at a time; its result is the whole call's, bit for bit.

    Arguments are checked when it is made, and raise InputError as the entry does. On the native
    backend a slice ends when its time is over; on the torch backend the first one is the whole
    call. Until it has ended the states that the entry writes are half written: nobody else may
    use them, and where it is dropped they hold nothing of use. Other entries may run meanwhile
    on other states (`Model.use_state`, or a model rebound). One thread at a time.
    """

    def __init__(self, entry: Entry, args: tuple[Any, ...], keywords: dict[str, Any]):
        self._entry = entry
        model = entry.model
        self._values, self._dims = entry.signature.bind(args, keywords)
        self._beside = entry.signature.check_ranges(entry.ranges(), self._values, self._dims)
        if entry.uses_state:
            model.allocate()
        native = None if self._beside else model.native.entry(entry.name)
        self._native = native
        self._started = (
            None if native is None else model.native.start(native, self._values, self._dims)
        )
        self._result: Any = None
        self.ended = False
        self._dropped = False

    def run(self, seconds: float | None = None) -> bool:
        """Goes on for about so many seconds, None: to the end. Returns whether it has ended.

        Raises InputError where it was dropped, and as the entry does.
        """
        if self._dropped:
            raise InputError(f"entry `{self._entry.name}`: the call in slices was dropped")
        if self.ended:
            return True
        entry = self._entry
        if self._started is not None:
            assert self._native is not None
            try:
                if not self._started.paused.run(seconds):
                    return False
                result = self._started.arguments.folded(self._native)
            except InputError:  # nothing was written: the torch backend says which index and where
                result = None
        else:
            result = None
        if result is None:
            result = entry.run(self._values, self._dims, self._beside)
        self._result = entry.outward(result, entry.instance.result)
        self._started = None
        self.ended = True
        return True

    @property
    def result(self) -> Any:
        """What the entry returns. Raises InputError while it has not ended."""
        if not self.ended:
            raise InputError(f"entry `{self._entry.name}`: the call in slices has not ended")
        return self._result

    def drop(self) -> None:
        """Gives the call up; its memory is free."""
        self._dropped = not self.ended
        if self._started is not None:
            self._started.paused.drop()
            self._started = None
