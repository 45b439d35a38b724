"""Whether a change made anything slower: `python -m benchmarks guard --base REV`.

| module           | what it is                                                            |
|------------------|-----------------------------------------------------------------------|
| `cases`          | about sixty things to time, by the public API alone                   |
| `fingerprint`    | a hash of a program's plan and machine code                           |
| `worker`         | a process of one side: builds cases and runs blocks of calls, as told |
| `sides`          | the two trees, their environments, and talking to their workers       |
| `probes`         | loops beside every block that say whether the machine was disturbed   |
| `verdicts`       | paired ratios, their intervals, and what may be said of them          |
| `turns`          | who runs when: ABBA, in pairs of fresh processes, within the minutes  |
| `whole`          | cases that take a process of their own: import, compile, memory       |
| `results`        | files of results and tables made from them                            |
| `command`        | the command line                                                      |

docs/guard.md says how to read what it prints.
"""
