"""The questions of a datasheet, in short.

"Datasheets for Datasets" (Gebru et al. 2021), numbered as in appendix I of MemBench (Hong et al.
2024), which answers the 59 of its preprint.
"""

from __future__ import annotations

from typing import Final

#: Section, number of its first question, its questions.
SECTIONS: Final[tuple[tuple[str, int, tuple[str, ...]], ...]] = (
    (
        "Motivation",
        1,
        (
            "For what purpose was the data set made?",
            "Who made it, and on behalf of whom?",
            "Who paid for it?",
            "Anything else?",
        ),
    ),
    (
        "Composition",
        5,
        (
            "What are the instances?",
            "How many are there, of each kind?",
            "Are these all instances there are, or a sample?",
            "What does each instance consist of?",
            "Does each have a label or target?",
            "Is anything missing from instances?",
            "Are relations between instances made explicit?",
            "Are there recommended splits?",
            "Are there errors, noise or redundancies?",
            "Does it stand for itself, or rely on what is elsewhere: will that stay, is it"
            " archived, under which licences?",
            "Does it hold anything confidential?",
            "Does it hold anything offensive, threatening or frightening?",
            "Is it about people?",
            "Does it name groups of people?",
            "Can persons be told from it?",
            "Does it hold anything sensitive about people?",
            "Anything else?",
        ),
    ),
    (
        "Collection",
        22,
        (
            "How was the data acquired?",
            "By which mechanisms or programs, and how were these checked?",
            "If it is a sample: how was it drawn?",
            "Who took part in the collection, and how were they paid?",
            "Over what time was it collected?",
            "Was there an ethical review?",
            "Is it about people?",
            "Did it come from the people themselves, or by others?",
            "Were they told?",
            "Did they consent?",
            "Can they withdraw their consent?",
            "Was its impact on them analysed?",
            "Anything else?",
        ),
    ),
    (
        "Preprocessing",
        35,
        (
            "What was done to the data?",
            "Is the raw data kept?",
            "Is the software for it to be had?",
            "Anything else?",
        ),
    ),
    (
        "Uses",
        39,
        (
            "What has it been used for?",
            "Is there a list of works that use it?",
            "What else could it be used for?",
            "Does anything in it bear on later uses, or can it do harm?",
            "What must it not be used for?",
            "Anything else?",
        ),
    ),
    (
        "Distribution",
        45,
        (
            "Will others be given it?",
            "How?",
            "When?",
            "Under which licence or terms?",
            "Have third parties rights in it?",
            "Do export controls or other rules apply?",
            "Anything else?",
        ),
    ),
    (
        "Maintenance",
        52,
        (
            "Who hosts and maintains it?",
            "Whom can one ask?",
            "Is there a list of errors found?",
            "Will it be updated?",
            "If it is about people: is there a limit to how long it is kept?",
            "Will older versions stay?",
            "Can others add to it?",
            "Anything else?",
        ),
    ),
)

COUNT: Final = sum(len(questions) for _, _, questions in SECTIONS)
