"""A CUDA device for machines that have none: torch's rules about devices are kept, the arithmetic
is the CPU's.

    from tests.system.device import pretended

    with pretended() as card:                       # torch.cuda.is_available(), one device, cuda:0
        x = torch.ones(3, device="cuda")
        x + torch.ones(3)                           # RuntimeError: two devices, as on a real card
    assert card.syncs == 0                          # how often the host waited for the device
    print(card.text())                              # synchronisations and launches by line

Inside the block ``--device cuda`` and ``run.device: cuda`` work throughout robaudit, in threads
too. A tensor that comes out of the block cannot be used any more: call ``.cpu()`` inside it.
``python -m tests.system.device.count ESTIMATOR`` prints what an estimator costs.
"""

from tests.system.device.card import Card, pretended

__all__ = ["Card", "pretended"]
