"""Completion of the command line: the candidates that kubectl asks a plugin for, and scripts for shells.

kubectl runs `kubectl_complete-slurm` with the words after `kubectl slurm`; the last word is to be completed.  The answer has
one candidate a line.  Its last line is a directive of cobra: a colon and a number.  The scripts are for `kubectl-slurm`,
which kubectl's own completion does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

FILES = ":0"  # the shell completes names of files if there is no candidate
NO_FILES = ":4"
NAMES_POD = ("why", "trace", "explain")
NAMES_FILE = ("policy check",)
SCRIPTS = {
    "bash": """\
# Completion for kubectl-slurm. In ~/.bashrc: source <(kubectl-slurm completion bash)
# For `kubectl slurm` kubectl's own completion is enough; it runs kubectl_complete-slurm, which must be in PATH.
_kubectl_slurm() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == :* ]] || COMPREPLY+=("${line%%$'\\t'*}")
    done < <(kubectl_complete-slurm "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _kubectl_slurm kubectl-slurm
""",
    "zsh": """\
#compdef kubectl-slurm
# Completion for kubectl-slurm. In ~/.zshrc, after compinit: source <(kubectl-slurm completion zsh)
# For `kubectl slurm` kubectl's own completion is enough; it runs kubectl_complete-slurm, which must be in PATH.
_kubectl_slurm() {
    local -a found
    found=(${${(f)"$(kubectl_complete-slurm "${(@)words[2,CURRENT]}" 2>/dev/null)"}:#:*})
    if (( ${#found} )); then compadd -- "${(@)found%%$'\\t'*}"; else _files; fi
}
compdef _kubectl_slurm kubectl-slurm
""",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Functions that return names.  Each takes the words before the word to complete, and may return no names."""

    pods: Callable[[Sequence[str]], Sequence[str]]
    namespaces: Callable[[Sequence[str]], Sequence[str]]
    contexts: Callable[[Sequence[str]], Sequence[str]]


def answer(words: Sequence[str], helps: Mapping[str, str], sources: Sources) -> list[str]:
    """The lines of the answer.

    words    after `kubectl slurm`; the last is to be completed, and may be ""
    helps    of each command ("policy", "policy show"), its help as argparse writes it
    """
    before, word = words[:-1], words[-1] if words else ""
    found, directive = _candidates(before, word, helps, sources)
    return [*sorted({candidate for candidate in found if candidate.startswith(word)}), directive]


def _candidates(
    before: Sequence[str], word: str, helps: Mapping[str, str], sources: Sources
) -> tuple[Sequence[str], str]:
    command, last = " ".join(before[:2]), before[-1] if before else ""
    if command not in helps:
        command = before[0] if before else ""
    if within := _commands_of(command, helps):
        return within, NO_FILES
    if last in ("-n", "--namespace"):
        return sources.namespaces(before), NO_FILES
    if last == "--context":
        return sources.contexts(before), NO_FILES
    if last in ("-o", "--output") or command == "completion":
        return _choices(helps.get(command, ""), last), NO_FILES
    if command in NAMES_FILE and not word.startswith("-"):
        return (), FILES
    if last in ("-f", "--kubeconfig", "--config", "--http-token-file", "--slurm-token-file"):
        return (), FILES
    if word.startswith("-"):
        return re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helps.get(command, "")), NO_FILES
    return sources.pods(before) if command in NAMES_POD else (), NO_FILES


def _commands_of(command: str, helps: Mapping[str, str]) -> list[str]:
    """The subcommands of a command; of "": the commands of `kubectl slurm`."""
    before = f"{command} " if command else ""
    after = [name.removeprefix(before) for name in helps if name.startswith(before)]
    return [name for name in after if " " not in name]


def _choices(text: str, last: str) -> list[str]:
    """The values that an option or an argument accepts, from `{json,wide}` in the help of its command.

    last   the option; if the help shows no such option with values, the first values in the help are returned
    """
    found = re.search(rf"(?:{re.escape(last)} )?\{{([\w,]+)\}}", text)
    return found[1].split(",") if found else []
