"""What robaudit does on a real CUDA card, measured in one command of a few minutes.

    python -m tests.research.gpu                          # on the machine with the card
    python -m tests.research.gpu --device cpu --tiny      # all that can be tried without one
    python -m tests.research.gpu --page FOLDER/result.json    # the section for docs/research

The parts, in the order of their importance: the values of a CPU, passes a second, an audit from the
command line, launches and waits beside those of the pretended card (tests/system/device), two
processes on one card, the same bytes twice. Each has a share of the time, says what it left out,
and does not stop the others if it fails; the results are written after each step.

Needs Python 3.11 or later, torch with CUDA, torchvision and the other dependencies of robaudit, and
pytest; no network, and robaudit itself need not be installed.
``python -m tests.research.gpu.wheels FOLDER`` fetches what a machine with torch may lack.
"""
