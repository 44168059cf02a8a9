"""Brings adapter versions from the learner to the engine, and proves that they arrived."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safetensors import SafetensorError

from trainer.checkpoint import RunState
from trainer.domain import Member
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.rollout.engine import AdapterVersion, Completion, Engine, GenerationRequest, generate_all
from trainer.store import DiskError, RunStore, commit_folder

_PROBE_TOKENS = 12
_KEPT_VERSIONS = 2  # besides the first


@dataclass(frozen=True, slots=True)
class Probe:
    """What the engine's answer to a fixed question says about the adapter that it serves under a member's name."""

    difference: float
    """Mean |log-probability difference| to the learner. A missing adapter (base served instead) gives about 1 after a
    warm-up, numeric noise in bfloat16 at most 0.05."""
    is_stale: bool = False
    """The answer and its numbers are, to the last bit, those of the version before, although the weights changed. Finds
    what is below the noise; an engine whose numbers depend on the batch may hide it."""
    twins: tuple[str, ...] = ()
    """Members for whom the engine answered the same to the last bit, although the learner tells them apart: for clones
    of one warm-up the difference to the learner is below the noise."""


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
        try:
            member.content_hash = self._learner.adapters.save(member.uid, draft)
            commit_folder(draft, final)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise DiskError(f"cannot write adapter {final}: {error}. Free some space and use --resume") from error
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
        answers = {m.uid: a for m, (a,) in zip(members, generate_all(self._engine, requests), strict=True)}
        ours = {uid: self._score(uid, answer) for uid, answer in answers.items()}
        return {member.uid: self._compare(member, answers, ours) for member in members}

    def _score(self, uid: str, answer: Completion) -> list[float]:
        sequence = TokenSequence(self._probe_ids, answer.token_ids)
        return self._learner.compute_logprobs(uid, [sequence], temperature=1.0)[0].tolist()

    def _compare(self, member: Member, answers: Mapping[str, Completion], ours: Mapping[str, Sequence[float]]) -> Probe:
        uid = member.uid
        answer = answers[uid]
        difference = sum(abs(a - b) for a, b in zip(ours[uid], answer.logprobs, strict=True)) / len(answer.logprobs)
        weights, before = self._probed.get(uid, (member.content_hash, None))
        self._probed[uid] = (member.content_hash, answer)
        twins = tuple(u for u, other in answers.items() if u != uid and other == answer and ours[u] != ours[uid])
        return Probe(difference, weights != member.content_hash and before == answer, twins)
