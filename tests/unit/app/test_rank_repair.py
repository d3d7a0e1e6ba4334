"""What becomes of the training of a rank that is given up."""

import asyncio
import gc

import pytest

from danaus.app.rank_repair import let_go
from danaus.core.errors import SupervisionError


@pytest.mark.parametrize("has_ended", [True, False])
def test_nobody_reports_the_end_of_a_rank_that_is_let_go(has_ended):
    reported = []

    async def train(goes_on):
        await goes_on.wait()
        raise SupervisionError("replica-1[1]", "it is lost")

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: reported.append(facts))
        goes_on = asyncio.Event()
        call = asyncio.ensure_future(train(goes_on))
        if has_ended:
            goes_on.set()
            await asyncio.wait([call])
        let_go(call)
        goes_on.set()
        await asyncio.wait([call])
        assert call.cancelled() is not has_ended
        del call
        gc.collect()

    asyncio.run(main())
    assert reported == []
