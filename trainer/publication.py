"""Brings adapter versions from the learner to the engine, and proves that they arrived."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.checkpoint import RunState
from trainer.domain import Member
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.rollout.engine import AdapterVersion, Completion, Engine, GenerationRequest, generate_all
from trainer.store import RunStore, commit_folder

_PROBE_TOKENS = 12
_KEPT_VERSIONS = 2  # besides the first


@dataclass(frozen=True, slots=True)
class Probe:
    """What the engine's answer to a fixed question says about the adapter that it serves under a member's name."""

    difference: float
    """Mean |log-probability difference| to the learner. A missing adapter (base served instead) gives about 1 after a
    warm-up, numeric noise in bfloat16 at most 0.05."""
    is_stale: bool
    """The answer and its numbers are, to the last bit, those of the version before, although the weights changed. Finds
    what is below the noise; an engine whose numbers depend on the batch may hide it."""


class Publisher:
    """Saves, publishes and retires adapter versions; knows which version of a member is served."""

    def __init__(self, store: RunStore, learner: Learner, engine: Engine, *, probe_ids: tuple[int, ...]) -> None:
        self._store = store
        self._learner = learner
        self._engine = engine
        self._probe_ids = probe_ids
        self._served: dict[str, AdapterVersion] = {}
        self._probed: dict[str, tuple[str, Completion]] = {}
        """Weights (by hash) and answer of each member's last probe."""

    def served(self, uid: str) -> AdapterVersion:
        """Return the version of a member that the engine serves."""
        return self._served[uid]

    def publish(self, member: Member, state: RunState) -> None:
        """Write the member's current version to the run folder and serve it in place of the one before."""
        final = self._store.adapter_folder(member.uid, member.version)
        draft = final.with_name(f".draft-{member.version}")
        final.parent.mkdir(exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)  # of a killed step
        member.content_hash = self._learner.adapters.save(member.uid, draft)
        commit_folder(draft, final)
        adapter = AdapterVersion(f"{member.uid}@{member.version}", state.next_adapter_number, str(final.resolve()))
        state.next_adapter_number += 1
        self._engine.publish(adapter)
        self.retire(member.uid)
        self._served[member.uid] = adapter
        self._store.drop_adapter_versions(member.uid, current=member.version, keep=_KEPT_VERSIONS)

    def retire(self, uid: str) -> None:
        """Stop serving a member, if it is served."""
        adapter = self._served.pop(uid, None)
        if adapter is not None:
            self._engine.retire(adapter)

    def probe(self, members: Sequence[Member]) -> dict[str, Probe]:
        """Ask for the likeliest answer of each member, and compare with the learner and with the answer before."""
        requests = [
            GenerationRequest(
                prompt_ids=self._probe_ids,
                adapter=self._served[member.uid],
                num_samples=1,
                max_tokens=_PROBE_TOKENS,
                temperature=0.0,
            )
            for member in members
        ]
        answers = generate_all(self._engine, requests)
        return {member.uid: self._compare(member, answer) for member, (answer,) in zip(members, answers, strict=True)}

    def _compare(self, member: Member, answer: Completion) -> Probe:
        sequence = TokenSequence(self._probe_ids, answer.token_ids)
        ours_T = self._learner.compute_logprobs(member.uid, [sequence], temperature=1.0)[0]
        pairs = zip(ours_T.tolist(), answer.logprobs, strict=True)
        difference = sum(abs(a - b) for a, b in pairs) / len(answer.logprobs)
        weights, before = self._probed.get(member.uid, (member.content_hash, None))
        self._probed[member.uid] = (member.content_hash, answer)
        return Probe(difference, weights != member.content_hash and before == answer)
