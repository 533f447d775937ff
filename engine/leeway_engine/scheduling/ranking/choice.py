"""From settings to a ranking."""

from leeway_core.policies import EffectivePriority, FirstCome, Policies, ShortestPrompt, SkipJoin, TokenCounters

from leeway_engine.scheduling.outlook import Outlook
from leeway_engine.scheduling.ranking.by_deadline import DeadlineRanking
from leeway_engine.scheduling.ranking.effective_priority import EffectivePriorityRanking
from leeway_engine.scheduling.ranking.first_come import FirstComeRanking
from leeway_engine.scheduling.ranking.ranking import Ranking
from leeway_engine.scheduling.ranking.shortest_prompt import ShortestPromptRanking
from leeway_engine.scheduling.ranking.skip_join import SkipJoinRanking
from leeway_engine.scheduling.ranking.token_counters import TokenCountersRanking
from leeway_engine.scheduling.tenants import Tenants

Settings = FirstCome | ShortestPrompt | EffectivePriority | SkipJoin | TokenCounters


def ranking_of(policies: Policies, outlook: Outlook, tenants: Tenants) -> Ranking:
    """Return the ranking that the policies name, after deadlines where slack counts, with nothing in it."""
    if policies.slack is None:
        return _plain(policies.ranking, outlook, tenants)
    return DeadlineRanking(policies.slack, outlook, lambda: _plain(policies.ranking, outlook, tenants))


def _plain(settings: Settings, outlook: Outlook, tenants: Tenants) -> Ranking:
    match settings:
        case FirstCome():
            return FirstComeRanking()
        case ShortestPrompt():
            return ShortestPromptRanking(settings)
        case EffectivePriority():
            return EffectivePriorityRanking(settings, outlook)
        case SkipJoin():
            return SkipJoinRanking(settings)
        case TokenCounters():
            return TokenCountersRanking(tenants)
