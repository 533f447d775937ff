"""Optuna at the edge: asks a study for candidates, and tells it how they fared."""

import zlib
from collections.abc import Iterable, Mapping

import optuna
from leeway_core.knobs import Knobs
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from leeway_tuner.binding import Binding
from leeway_tuner.space import Point, Space
from leeway_tuner.state import Proposal, State

FIRST_LOOKS: Mapping[Binding | None, tuple[float, ...]] = {
    None: (0.5, 0.25, 0.75),
    "itl": (0.5, 0.25, 0.75),
    "ttft": (0.5, 0.75, 0.25),
}
"""Where the sampler has nothing to go by yet: halfway from the lowest token limits to the highest, and then further
where the bound that holds the profile back is met."""
_TOKEN_LIMITS = {"token_budget", "prefill_heavy_chunk", "decode_heavy_chunk"}

optuna.logging.set_verbosity(optuna.logging.WARNING)


def forget(storage: BaseStorage, uid: str) -> None:
    """Keep no study of a profile."""
    for name in optuna.get_all_study_names(storage):
        if name.startswith(f"{uid}/"):
            optuna.delete_study(study_name=name, storage=storage)


class Search:
    """The study of one profile's space. A point is given to Optuna by the places of its values in their order."""

    def __init__(self, storage: BaseStorage, uid: str, key: str, space: Space, starting: Knobs) -> None:
        """Open the study, or make one in which the starting knobs score 0."""
        self._space = space
        self._distributions: dict[str, BaseDistribution] = {
            each.knobs[0]: IntDistribution(0, len(each.values) - 1) for each in space.dimensions
        }
        name = f"{uid}/{key}"
        self._study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        trials = self._study.get_trials(deepcopy=False)
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=len(FIRST_LOOKS[None]) + 1, seed=zlib.crc32(name.encode()) + len(trials)
        )
        if not trials and space.dimensions:
            start = self._nearest(space.points(starting), self._places(space.point(starting)))
            if start is not None:
                parameters = self._parameters(start)
                self._study.add_trial(
                    optuna.create_trial(params=parameters, distributions=self._distributions, value=0.0)
                )

    def ask(
        self,
        incumbent: Knobs,
        boldness: float,
        tried: Iterable[Point],
        binding: Binding | None = None,
        limit: float = 1.0,
    ) -> Proposal | None:
        """Return what to try next, no bolder than that and not tried yet, or None if there is nothing.

        The next value of a knob may be further away, but no further than `limit`.
        `binding` is what holds the incumbent back: settings that can only make that worse come last.
        """
        out = {*tried, self._space.point(incumbent)}
        allowed = [
            point
            for point in self._space.points(incumbent)
            if point not in out and self._space.in_reach(point, incumbent, boldness, limit)
        ]
        helping = [point for point in allowed if self._may_help(point, incumbent, binding)]
        point = self._nearest(helping or allowed, self._wanted(incumbent, binding)) if allowed else None
        if point is None:
            return None
        self._study.enqueue_trial(self._parameters(point))
        while (trial := self._study.ask(self._distributions)).params != self._parameters(point):
            self._study.tell(trial, state=TrialState.FAIL)
        return Proposal(number=trial.number, point=point)

    def settle(self, state: State) -> None:
        """Tell how a trial has ended, and fail those that run for nobody, which would repel the sampler."""
        outcome = state.outcome
        in_use = {state.trial and state.trial.number, state.advice and state.advice.proposal.number}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if outcome is not None and trial.number == outcome.number:
                self._study.tell(trial.number, outcome.score)
            elif trial.number not in in_use:
                self._study.tell(trial.number, state=TrialState.FAIL)

    def _may_help(self, point: Point, incumbent: Knobs, binding: Binding | None) -> bool:
        """Smaller iterations shorten the gaps between tokens, larger ones the time to the first."""
        if binding is None:
            return True
        moves = [
            there - here
            for each, there, here in zip(self._space.dimensions, point, self._space.point(incumbent), strict=True)
            if each.knobs[0] in _TOKEN_LIMITS
        ]
        return max(moves, default=0) <= 0 if binding == "itl" else min(moves, default=0) >= 0

    def _wanted(self, incumbent: Knobs, binding: Binding | None) -> tuple[float, ...]:
        told = len(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) - 1
        if told < len(FIRST_LOOKS[binding]):
            here = self._places(self._space.point(incumbent))
            return tuple(
                FIRST_LOOKS[binding][max(told, 0)] if each.knobs[0] in _TOKEN_LIMITS else place
                for each, place in zip(self._space.dimensions, here, strict=True)
            )
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=TrialState.FAIL)
        return self._places(tuple(each.values[trial.params[each.knobs[0]]] for each in self._space.dimensions))

    def _places(self, point: Point) -> tuple[float, ...]:
        return tuple(each.place(value) for each, value in zip(self._space.dimensions, point, strict=True))

    def _nearest(self, points: Iterable[Point], wanted: tuple[float, ...]) -> Point | None:
        def distance(point: Point) -> float:
            return sum((there - here) ** 2 for there, here in zip(self._places(point), wanted, strict=True))

        return min(points, key=distance, default=None)

    def _parameters(self, point: Point) -> dict[str, int]:
        return {
            each.knobs[0]: each.values.index(value) for each, value in zip(self._space.dimensions, point, strict=True)
        }
