"""Brings adapter versions from the learner to the engine, and proves that they arrived."""

import shutil
from collections.abc import Sequence

from trainer.checkpoint import RunState
from trainer.domain import Member
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.rollout.engine import AdapterVersion, Engine, GenerationRequest, generate_all
from trainer.store import RunStore, commit_folder

_PROBE_TOKENS = 12
_KEPT_VERSIONS = 2  # besides the first


class Publisher:
    """Saves, publishes and retires adapter versions; knows which version of a member is served."""

    def __init__(self, store: RunStore, learner: Learner, engine: Engine, *, probe_ids: tuple[int, ...]) -> None:
        self._store = store
        self._learner = learner
        self._engine = engine
        self._probe_ids = probe_ids
        self._served: dict[str, AdapterVersion] = {}

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

    def probe(self, members: Sequence[Member]) -> dict[str, float]:
        """Return the mean |log-probability difference| between engine and learner for each member.

        A missing adapter (base served instead) shows as a difference of about 1 after a warm-up, and numeric noise
        as at most 0.05. A version that is stale by one small step differs by less than the noise: against that stand
        the unique names of versions and the conformance tests of the engine, not this probe.
        """
        requests = [
            GenerationRequest(
                prompt_ids=self._probe_ids,
                adapter=self._served[member.uid],
                num_samples=1,
                max_tokens=_PROBE_TOKENS,
                temperature=1.0,
            )
            for member in members
        ]
        differences = {}
        for member, (completion,) in zip(members, generate_all(self._engine, requests), strict=True):
            sequence = TokenSequence(self._probe_ids, completion.token_ids)
            ours_T = self._learner.compute_logprobs(member.uid, [sequence], temperature=1.0)[0]
            pairs = zip(ours_T.tolist(), completion.logprobs, strict=True)
            differences[member.uid] = sum(abs(a - b) for a, b in pairs) / len(completion.logprobs)
        return differences
